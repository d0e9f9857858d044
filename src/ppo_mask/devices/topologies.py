"""TPUs and GPUs by name, as devices that are not here: programs can be compiled for them."""

import contextlib
import difflib
import os
from collections.abc import Generator
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import jax
from jax.experimental import topologies

from ppo_mask.devices._gpus import GPUS, find_gpu
from ppo_mask.devices._topology import Topology as Topology
from ppo_mask.devices._tpus import TPUS, WANTED_BY_LIBTPU, find_tpu
from ppo_mask.errors import RunError

NAMES = (*(name for names in TPUS.values() for name in names), *GPUS)
"""Of the TPU slices that can be rented, and of GPUs; ``v4:2x2x4`` names any other arrangement of
TPU chips, ``h100:4`` several GPUs."""


def find(name: str) -> Topology:
    """Finds the devices that a name means.

    Args:
        name: one of :data:`NAMES`; a generation of TPUs and an arrangement of chips, such as
            ``v4:2x2x4``; or a GPU and how many of them, such as ``h100:4``.

    Raises:
        RunError: there are none of that name.
    """
    if found := find_tpu(name) or find_gpu(name):
        return found
    close = difflib.get_close_matches(name.lower(), NAMES, n=1)
    hint = f": did you mean {close[0]}?" if close else ""
    tpus = ", ".join(f"{names[0]} to {names[-1]}" for names in TPUS.values())
    raise RunError(
        f"there is no TPU or GPU {name}{hint} (there are {tpus}, arrangements of chips such as "
        f"v4:2x2x4 and v5e:4x8, and {', '.join(GPUS)}, of which h100:4 is 4 and h100:16 two hosts)"
    )


def compiler_of(topology: Topology) -> str:
    """The package that compiles for devices.

    Raises:
        RunError: it is not installed; one line that says what to install.
    """
    if topology.platform == "tpu":
        libtpu = find_spec("libtpu")
        if libtpu is not None and libtpu.origin is not None:  # A mere folder has no origin.
            return "libtpu"
        raise _missing(topology, "libtpu (not a TPU)", "tpu")
    found = find_spec("jax_plugins")
    for number in (13, 12):
        if found is not None and find_spec(f"jax_plugins.xla_cuda{number}"):
            return f"jax-cuda{number}-plugin"
    raise _missing(topology, "JAX's CUDA plugin (not a GPU)", "cuda")


def _missing(topology: Topology, what: str, extra: str) -> RunError:
    return RunError(f"compiling for {topology.name} needs {what}: pip install 'ppo-mask[{extra}]'")


def devices_of(topology: Topology) -> list[Any]:
    """Makes devices that programs can be compiled for; nothing can be put or run on them.

    Raises:
        RunError: the compiler is not installed, or does not know such devices.
    """
    compiler = compiler_of(topology)
    wanted = WANTED_BY_LIBTPU if topology.platform == "tpu" else {}
    try:
        jax.devices()  # Finds the plugins.
        with _environment(wanted):
            found = topologies.get_topology_desc(
                topology.arrangement, topology.platform, **topology.options
            )
    except (jax.errors.JaxRuntimeError, RuntimeError, ValueError) as error:
        reason = str(error).partition("\n")[0]
        raise RunError(f"{compiler} cannot compile for {topology.name}: {reason}") from error
    return list(found.devices)


def versions_for(topology: Topology) -> dict[str, str]:
    """Versions of what compiles for devices, by package."""
    return {name: version(name) for name in ("jax", compiler_of(topology))}


def without_accelerators() -> None:
    """Keeps JAX from starting an accelerator of this machine; call it before JAX is used.

    libtpu can be started once in a process, either for a TPU that is there or to compile for
    another.
    """
    jax.config.update("jax_platforms", "cpu")


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Generator[None]:
    """Sets variables for a while, and leaves no trace."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
