"""The game's update, compiled for TPUs and GPUs that are not here, keeps what it is meant to.

It needs libtpu and JAX's CUDA plugin in folders of their own, which PPO_MASK_LIBTPU and
PPO_MASK_CUDA name; ``.ci/run slow`` puts them there. Where libtpu is installed like other packages,
every start of JAX looks for a TPU.
"""

import dataclasses
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import equinox as eqx
import jax
import pytest

from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.networks import trainable

pytestmark = pytest.mark.optimized


class Compiler(NamedTuple):
    """Where a compiler is looked for.

    Attributes:
        variable: names its folder.
        file: that is in it.
        packages: of pip, that are installed there.
    """

    variable: str
    file: str
    packages: str

    def folder(self) -> str:
        """The folder; skips the test where it is not there."""
        folder = os.environ.get(self.variable) or "/nowhere"
        if not Path(folder, self.file).is_file():
            pytest.skip(f"pip install --no-deps --target X {self.packages}, then {self.variable}=X")
        return folder


LIBTPU = Compiler("PPO_MASK_LIBTPU", "libtpu/__init__.py", "libtpu")
CUDA = Compiler(
    "PPO_MASK_CUDA",
    "jax_plugins/xla_cuda13/__init__.py",
    "jax-cuda13-plugin jax-cuda13-pjrt nvidia-cuda-nvcc nvidia-nvvm",
)


class Budget(NamedTuple):
    """What a program may take.

    Attributes:
        environment_step: kernels one after another, with one turn of each loop.
        gradient_step: the same.
        megabytes: of a chip.
    """

    environment_step: int
    gradient_step: int
    megabytes: int


# Each network and each kind of slice: half a minute for each of the programs.
PROGRAMS = {
    ("v5e-1", "mlp"): Budget(670, 110, 65),
    ("v4-8", "mlp"): Budget(600, 130, 60),
    ("v4-16", "mlp"): Budget(600, 130, 60),
    ("v5e-4", "board"): Budget(610, 250, 75),
    ("v6e-4", "recurrent"): Budget(570, 135, 50),
    ("h100", "mlp"): Budget(270, 130, 140),
    ("h100:4", "board"): Budget(330, 250, 140),
}


def report(topology: str, network: str) -> dict[str, Any]:
    folder = (CUDA if topology.startswith("h") else LIBTPU).folder()
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    words = ["train", "--compile-for", topology, "--network", network, "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "hackmatrix", *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bytes_of_parameters(network: str) -> int:
    env = TASK.make_env(DEFAULTS.environment)
    settings = dataclasses.replace(DEFAULTS.network, network=network)
    arrays = eqx.filter_eval_shape(
        lambda key: trainable(TASK.new_model(env, settings, key))[0], jax.random.key(0)
    )
    return sum(4 * x.size for x in jax.tree.leaves(arrays) if isinstance(x, jax.ShapeDtypeStruct))


# What each run of CI compiles: each compiler once for one chip, and the TPU's for several.
OFTEN = (("v5e-1", "mlp"), ("v5e-4", "board"), ("h100", "mlp"))


@pytest.mark.parametrize(
    ("topology", "network"),
    [pytest.param(*x, marks=[] if x in OFTEN else pytest.mark.nightly) for x in PROGRAMS],
)
def test_programs_for_accelerators(topology: str, network: str) -> None:
    found, budget = report(topology, network), PROGRAMS[topology, network]
    assert found["aliased_arrays"] == found["state_arrays"] > 100
    assert found["host_transfers"] == []
    # JAX numbers keys in 64 bits, inside of one kernel; libtpu makes two numbers of it.
    assert set(found["wide_types"]) <= ({"u64"} if topology.startswith("h") else set())

    exchanged = [each["num_bytes"] for each in found["gradient_step"]["collectives"]]
    if found["num_chips"] == 1:
        assert exchanged == found["rest"] == []
    else:
        gradient = bytes_of_parameters(network)
        # The gradient with the metrics about it, and two sums for the advantages' deviation.
        assert gradient <= max(exchanged) < gradient + 64
        # A GPU's compiler may join a metric to one of these.
        assert sorted(exchanged)[:-1] in ([4, 4], [4, 8])
        assert sum(each["num_bytes"] for each in found["rest"]) < 256
    # Neither observations nor anything else of a rollout.
    assert found["environment_step"]["collectives"] == []
    everything = [*found["gradient_step"]["collectives"], *found["rest"]]
    assert {each["kind"] for each in everything} <= {"all-reduce"}

    for step in ("environment_step", "gradient_step"):
        kernels = found[step]["kernels"]
        names = ("fusions", "copies", "collectives", "others", "in_loops")
        assert 0 < sum(kernels[name] for name in names) <= getattr(budget, step), (step, kernels)
    assert found["memory"]["needed"] <= budget.megabytes * 1e6
