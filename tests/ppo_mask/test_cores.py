"""A CPU's cores as devices: how many there are, how many a run takes, what it learns there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_mask.run_folder import RunFolder

_CORRIDOR = Path(__file__).with_name("corridor.py")
_FREE = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}


def _found(program: str, **environment: str):
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=_FREE | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


_COUNT = """
import jax
from ppo_mask import cores
cores.make_devices()
print(jax.device_count())
"""


def test_there_are_as_many_devices_as_cores():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert cores is not None
    assert _found(_COUNT) == min(cores, 16)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("XLA_FLAGS", "--xla_force_host_platform_device_count=3"),
        ("JAX_NUM_CPU_DEVICES", "3"),
    ],
)
def test_a_number_that_is_set_stays(variable, value):
    assert _found(_COUNT, **{variable: value}) == 3


def test_jax_that_has_started_stays_as_it_is():
    assert _found("import jax; jax.devices()" + _COUNT) == 1


_BEST = """
import json
from ppo_mask.config import PPOConfig
from ppo_mask.cores import best_count
configs = [
    dict(num_envs=64), dict(num_envs=255), dict(num_envs=256), dict(num_envs=400),
    dict(num_envs=1000), dict(num_envs=4096), dict(num_envs=4096, num_steps=1, num_minibatches=4),
    dict(num_envs=256, num_steps=1, num_minibatches=256),
]
print(json.dumps([best_count(PPOConfig(**config)) for config in configs]))
"""


def test_each_core_gets_enough_environments_and_an_equal_share():
    # 400 is not a multiple of 3, nor 1,000 of 7 or 6; and where a minibatch is one environment's
    # one step, it cannot be shared at all.
    assert _found(_BEST, JAX_NUM_CPU_DEVICES="8") == [1, 1, 2, 2, 5, 8, 8, 1]


def test_devices_that_are_no_cores_are_all_taken():
    flags = "--xla_force_host_platform_device_count=8"
    assert _found(_BEST, XLA_FLAGS=flags) == [None] * 8


def _trained(parent: Path, cores: int, *flags: str) -> tuple[str, list[dict[str, float]]]:
    updates = ["--num-envs=256", "--num-steps=4", "--total-timesteps=6144", "--log-interval=2"]
    done = subprocess.run(
        [sys.executable, str(_CORRIDOR), f"--checkpoint-dir={parent}", *updates, *flags],
        env=_FREE | {"JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": str(cores)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    (folder,) = parent.iterdir()
    lines = RunFolder(folder).metrics.read_text().splitlines()
    return done.stdout, [json.loads(line) for line in lines]


@pytest.mark.parametrize("flags", [(), ("--debug-nans",)])
def test_a_run_takes_both_cores_and_learns_the_same(tmp_path, flags):
    printed, one = _trained(tmp_path / "one", 1, *flags)
    assert "device  1 x cpu" in printed
    printed, both = _trained(tmp_path / "both", 2, *flags)
    assert "device  2 x cpu" in printed
    assert len(one) == len(both) == 3
    for line, expected in zip(both, one, strict=True):
        names = [name for name in expected if name != "train/steps_per_second"]
        assert "train/vf_loss" in names
        for name in names:
            assert line[name] == pytest.approx(expected[name], abs=1e-3), name
