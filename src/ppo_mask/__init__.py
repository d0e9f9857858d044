"""PPO with action masks on JAX and Equinox: ``import ppo_mask as pm``.

This package re-exports the names of its subpackages that most programs need. :mod:`~ppo_mask.envs`,
:mod:`~ppo_mask.networks`, :mod:`~ppo_mask.acting`, :mod:`~ppo_mask.training` and
:mod:`~ppo_mask.ppo` lead from an environment's step to a gradient step; :mod:`~ppo_mask.search`
thinks before acting. :mod:`~ppo_mask.callbacks`, :mod:`~ppo_mask.checkpoints`,
:mod:`~ppo_mask.export`, :mod:`~ppo_mask.runner`, :mod:`~ppo_mask.devices`,
:mod:`~ppo_mask.adapters` and :mod:`~ppo_mask.jax_tools` are the tools around it. Each subpackage is
imported on first use.

jaxtyping and beartype check the shapes and dtypes of every public function at trace time.
"""

import importlib
import re
from importlib.metadata import PackageNotFoundError, requires, version
from typing import TYPE_CHECKING, Any


def _check_versions() -> None:
    """Refuses in one line a dependency that another package's installation has made too old."""
    try:
        for requirement in requires("ppo-mask") or []:
            # The requirement of an extra has more after its version.
            if found := re.fullmatch(r"([\w-]+)>=([\d.]+?)(?:\.0)*", requirement):
                name, there = found[1], version(found[1])
                if _numbers(there) < _numbers(found[2]):
                    raise ImportError(
                        f"ppo-mask needs {requirement}, and {name} {there} is installed; "
                        f"pip install '{requirement}', and pip check names what needs an older one"
                    )
    except PackageNotFoundError:
        pass  # Sources without an installation, or a missing dependency: its import says so.


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]


_check_versions()

from ppo_mask._typecheck import check_types as _check_types  # noqa: E402

_check_types("ppo_mask", but="ppo_mask.adapters._on_host")

if TYPE_CHECKING:
    from ppo_mask import (
        acting,
        adapters,
        callbacks,
        checkpoints,
        devices,
        envs,
        export,
        jax_tools,
        networks,
        ppo,
        runner,
        search,
        training,
    )
    from ppo_mask.checkpoints import load_policy, save_policy
    from ppo_mask.envs import AbstractEnv, MultiTask, TimeLimit, TimeStep, VectorEnv, check_env
    from ppo_mask.export import export_policy
    from ppo_mask.jax_tools import rarely
    from ppo_mask.networks import (
        AbstractActorCritic,
        AbstractReader,
        AbstractRecurrentActorCritic,
        ConvActorCritic,
        GRUActorCritic,
        MaskedCategorical,
        MaskedMultiCategorical,
        MLPActorCritic,
        Model,
        Policy,
        SetActorCritic,
        network_for,
    )
    from ppo_mask.ppo import PPO
    from ppo_mask.search import Search
    from ppo_mask.training import (
        AbstractAlgorithm,
        Callback,
        History,
        Metric,
        Trainer,
        TrainingError,
        TrainState,
        evaluate,
    )

    __version__: str

else:  # For type checkers, any name would be there.

    def __getattr__(name: str) -> Any:
        # JAX alone takes longer to import than all of this package's other dependencies: a program
        # that only asks for the version, or prints --help, should not wait for it.
        if name in (*_ON_FACE, *_OTHER_ROOMS):
            return importlib.import_module(f"{__name__}.{name}")
        if name == "__version__":
            return version("ppo-mask")
        if name in __all__:
            for room in map(__getattr__, _ON_FACE):
                if name in room.__all__:
                    globals()[name] = getattr(room, name)  # Later accesses skip this function.
                    return globals()[name]
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# The subpackages whose names are re-exported here, in order of import time, fastest first.
_ON_FACE = ("jax_tools", "envs", "networks", "search", "training", "ppo", "checkpoints", "export")
_OTHER_ROOMS = ("acting", "adapters", "callbacks", "devices", "runner")

__all__ = [
    "PPO",
    "AbstractActorCritic",
    "AbstractAlgorithm",
    "AbstractEnv",
    "AbstractReader",
    "AbstractRecurrentActorCritic",
    "Callback",
    "ConvActorCritic",
    "GRUActorCritic",
    "History",
    "MLPActorCritic",
    "MaskedCategorical",
    "MaskedMultiCategorical",
    "Metric",
    "Model",
    "MultiTask",
    "Policy",
    "Search",
    "SetActorCritic",
    "TimeLimit",
    "TimeStep",
    "TrainState",
    "Trainer",
    "TrainingError",
    "VectorEnv",
    "__version__",
    "acting",
    "adapters",
    "callbacks",
    "check_env",
    "checkpoints",
    "devices",
    "envs",
    "evaluate",
    "export",
    "export_policy",
    "jax_tools",
    "load_policy",
    "network_for",
    "networks",
    "ppo",
    "rarely",
    "runner",
    "save_policy",
    "search",
    "training",
]


def __dir__() -> list[str]:
    return __all__
