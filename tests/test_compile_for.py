"""The example that compiles for TPUs and GPUs that are not here, and what their programs keep to.

The compilers are in folders of their own, which PPO_MASK_LIBTPU and PPO_MASK_CUDA name; ``.ci/run
slow`` puts them there. Where libtpu is installed like other packages, every start of JAX looks for
a TPU.
"""

import os
import re
import runpy
from collections import Counter
from pathlib import Path

import equinox as eqx
import jax
import pytest

import corridor
from hackmatrix.task import DEFAULTS, TASK
from own_process import python
from ppo_mask.errors import RunError
from ppo_mask.networks import trainable
from ppo_mask.runner import RunConfig, Task

EXAMPLE = Path(__file__).parents[1] / "examples" / "compile_for.py"
PACKAGES = {
    "PPO_MASK_LIBTPU": "libtpu",
    "PPO_MASK_CUDA": "jax-cuda13-{plugin,pjrt} nvidia-cuda-nvcc nvidia-nvvm",
}
SUPPORT = str(Path(__file__).with_name("support"))

COMPILE_CORRIDOR = """
import runpy, sys
import corridor

main = runpy.run_path(sys.argv[1])["main"]
main.__globals__.update(TASK=corridor.TASK, DEFAULTS=corridor.DEFAULTS)
main(sys.argv[2:])
"""
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


def run(variable: str, *words: str) -> str:
    """What a process prints that has the compiler."""
    if (folder := os.environ.get(variable)) is None:
        pytest.skip(f"pip install --no-deps --target X {PACKAGES[variable]}, then {variable}=X")
    path = os.pathsep.join([folder, SUPPORT, os.environ.get("PYTHONPATH", "")])
    return python(*words, PYTHONPATH=path).stdout


def test_an_unknown_topology_is_one_line_that_names_the_known_ones() -> None:
    devices_of = runpy.run_path(str(EXAMPLE))["devices_of"]
    known = ".* v4-8, .* v5litepod-8, .*h100, .*"
    for name in ("v4-9", "v4-8x", "v5e-8", "h100:0", "h100:9", "v100", ""):
        with pytest.raises(RunError, match=rf"^unknown topology '{name}'; {known}$"):
            devices_of(name)


@pytest.mark.slow
def test_slices_have_the_chips_and_hosts_that_gcloud_gives_them() -> None:
    slices = {"v3-8": (8, 1), "v4-8": (4, 1), "v4-64": (32, 8), "v5p-16": (8, 2)}
    slices |= {"v5litepod-1": (1, 1), "v5litepod-8": (8, 1), "v5litepod-16": (16, 4)}
    slices |= {"v6e-4": (4, 1), "v6e-8": (8, 1), "v6e-64": (64, 16)}
    code = "import runpy, sys\nof = runpy.run_path(sys.argv[1])['devices_of']\n"
    code += f"for name in {[*slices]}:\n    ours = of(name)\n"
    code += "    print(name, len(ours), len({device.process_index for device in ours}))"
    rows = map(str.split, run("PPO_MASK_LIBTPU", "-c", code, str(EXAMPLE)).splitlines())
    assert {name: (int(n), int(hosts)) for name, n, hosts in rows} == slices


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variable", "words", "task", "defaults"),
    [
        ("PPO_MASK_LIBTPU", [str(EXAMPLE), "v4-8"], TASK, DEFAULTS),
        # Another task, for the game takes two minutes.
        (
            "PPO_MASK_CUDA",
            ["-c", COMPILE_CORRIDOR, str(EXAMPLE), "h100:4"],
            corridor.TASK,
            corridor.DEFAULTS,
        ),
    ],
    ids=["v4-8", "h100:4"],
)
def test_devices_exchange_gradients_only(
    variable: str, words: list[str], task: Task, defaults: RunConfig
) -> None:
    printed = run(variable, *words, "--num-envs=64")
    exchanged = re.findall(r"^([a-z-]+): \d+ in .* of ([\d,]+) bytes$", printed, re.MULTILINE)
    assert [kind for kind, _ in exchanged] == ["all-reduce"]  # Nothing of a rollout is gathered.
    env = task.make_env(defaults.environment)
    params = eqx.filter_eval_shape(
        lambda key: trainable(task.new_model(env, defaults.network, key))[0], jax.random.key(0)
    )
    gradient = 4 * sum(x.size for x in jax.tree.leaves(params) if hasattr(x, "size"))
    assert gradient <= int(exchanged[0][1].replace(",", "")) < gradient + 64
    assert float(re.findall(r"not updated in place ([\d.]+)", printed)[0]) < 0.02


@pytest.mark.slow
def test_a_step_of_the_game_on_a_gpu_is_few_kernels_and_three_loops() -> None:
    program = run("PPO_MASK_CUDA", "-c", COMPILE_STEP, str(EXAMPLE))
    loops = [part.count(" while(") for part in program.split("\n}\n") if " while(" in part]
    assert loops == [3]  # In one computation, so none is inside another.
    kernels = re.findall(r" (fusion|copy|copy-start|custom-call|sort|conditional)\(", program)
    assert len(kernels) <= 150, Counter(kernels)
