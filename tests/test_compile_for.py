"""The example that compiles for TPUs and GPUs that are not here, and what their programs keep to.

The compilers are in folders of their own, which PPO_MASK_LIBTPU and PPO_MASK_CUDA name; ``.ci/run
slow`` puts them there. Where libtpu is installed like other packages, every start of JAX looks for
a TPU.
"""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import equinox as eqx
import jax
import pytest

from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.errors import RunError
from ppo_mask.networks import trainable

EXAMPLE = Path(__file__).parents[1] / "examples" / "compile_for.py"


def run_example(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    command, env = [sys.executable, str(EXAMPLE), *words], {**os.environ, "PYTHONPATH": path}
    return subprocess.run(command, env=env, capture_output=True, text=True)


def test_an_unknown_topology_is_one_line_that_names_the_known_ones() -> None:
    devices_of = runpy.run_path(str(EXAMPLE))["devices_of"]
    for name in ("v4-9", "v4-8x", "h100:0", "h100:9", "v100", ""):
        with pytest.raises(RunError, match=rf"^unknown topology '{name}'; .* v4-8, .*h100, .*$"):
            devices_of(name)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("topology", "variable", "packages"),
    [
        ("v4-8", "PPO_MASK_LIBTPU", "libtpu"),
        ("h100:4", "PPO_MASK_CUDA", "jax-cuda13-{plugin,pjrt} nvidia-cuda-nvcc nvidia-nvvm"),
    ],
)
def test_devices_exchange_gradients_only(topology: str, variable: str, packages: str) -> None:
    if (folder := os.environ.get(variable)) is None:
        pytest.skip(f"pip install --no-deps --target X {packages}, then {variable}=X")
    done = run_example(folder, topology, "--num-envs=64")
    assert done.returncode == 0, done.stderr
    exchanged = re.findall(r"^([a-z-]+): \d+ in .* of ([\d,]+) bytes$", done.stdout, re.MULTILINE)
    assert [kind for kind, _ in exchanged] == ["all-reduce"]  # Nothing of a rollout is gathered.
    env = TASK.make_env(DEFAULTS.environment)
    params = eqx.filter_eval_shape(
        lambda key: trainable(TASK.new_model(env, DEFAULTS.network, key))[0], jax.random.key(0)
    )
    gradient = 4 * sum(x.size for x in jax.tree.leaves(params) if hasattr(x, "size"))
    assert gradient <= int(exchanged[0][1].replace(",", "")) < gradient + 64
    assert float(re.findall(r"not updated in place ([\d.]+)", done.stdout)[0]) < 0.02
