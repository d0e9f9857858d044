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
from collections import Counter
from pathlib import Path

import equinox as eqx
import jax
import pytest

from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.errors import RunError
from ppo_mask.networks import trainable

EXAMPLE = Path(__file__).parents[1] / "examples" / "compile_for.py"


COMPILE_STEP = """
import runpy, sys
import jax, jax.numpy as jnp
from hackmatrix import HackMatrix
from ppo_mask.envs import VectorEnv
from ppo_mask.jax_tools import for_platform

(device,) = runpy.run_path(sys.argv[1])["devices_of"]("h100")
place = jax.sharding.SingleDeviceSharding(device)
env, key = VectorEnv(HackMatrix(compact=True), 8192), jax.eval_shape(lambda: jax.random.key(0))
with for_platform("gpu"):
    given = key, jax.eval_shape(env.reset, key)[0], jax.ShapeDtypeStruct((8192,), jnp.int32)
    given = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place), given)
    lowered = jax.jit(env.step, donate_argnums=1).trace(*given).lower(lowering_platforms=("cuda",))
print(lowered.compile(compiler_options={"xla_gpu_autotune_level": 0}).as_text())
"""


def run(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
    command, env = [sys.executable, *words], {**os.environ, "PYTHONPATH": path}
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
    done = run(folder, str(EXAMPLE), topology, "--num-envs=64")
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


@pytest.mark.slow
def test_a_step_of_the_game_on_a_gpu_is_few_kernels_and_three_loops() -> None:
    if (folder := os.environ.get("PPO_MASK_CUDA")) is None:
        pytest.skip("PPO_MASK_CUDA names no folder; see the skip of the test above")
    done = run(folder, "-c", COMPILE_STEP, str(EXAMPLE))
    assert done.returncode == 0, done.stderr
    loops = [part.count(" while(") for part in done.stdout.split("\n}\n") if " while(" in part]
    assert loops == [3]  # In one computation, so none is inside another.
    kernels = re.findall(r" (fusion|copy|copy-start|custom-call|sort|conditional)\(", done.stdout)
    assert len(kernels) <= 150, Counter(kernels)
