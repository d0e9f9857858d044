"""A CPU's cores as devices: how many there are, how many a run takes, what it learns there."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppo_mask.checkpoints import RunFolder
from same_run import assert_same_run, log

_CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"
_FREE = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}


def _printed(*arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        env=_FREE | {"JAX_PLATFORMS": "cpu"} | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _found(program: str, **environment: str):
    return json.loads(_printed("-c", program, **environment).splitlines()[-1])


_COUNT = """
import jax
from ppo_mask.devices import cpu as cores
cores.make_devices()
print(jax.device_count())
"""


def test_there_are_as_many_devices_as_cores():
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    assert cores is not None
    assert _found(_COUNT) == min(cores, 16)


@pytest.mark.parametrize(
    ("variable", "value"),
    [("XLA_FLAGS", "--xla_force_host_platform_device_count=3"), ("JAX_NUM_CPU_DEVICES", "3")],
)
def test_a_number_that_is_set_stays(variable, value):
    assert _found(_COUNT, **{variable: value}) == 3


def test_jax_that_has_started_stays_as_it_is():
    assert _found("import jax; jax.devices()" + _COUNT) == 1


_BEST = """
import json
import jax
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig, can_split
from ppo_mask.devices.cpu import best_count
configs = [
    dict(num_envs=64), dict(num_envs=255), dict(num_envs=256), dict(num_envs=400),
    dict(num_envs=1000), dict(num_envs=4096), dict(num_envs=4096, num_steps=1, num_minibatches=4),
    dict(num_envs=256, num_steps=1, num_minibatches=256),
]
model = MLPActorCritic(1, 2, 1, 1, key=jax.random.key(0))
def best(config):
    return best_count(config.num_envs, lambda count: can_split(config, model, count))
print(json.dumps([best(PPOConfig(**config)) for config in configs]))
"""


def test_each_core_gets_enough_environments_and_an_equal_share():
    # 400 is not a multiple of 3, nor 1,000 of 7 or 6; and where a minibatch is one environment's
    # one step, it cannot be shared at all.
    assert _found(_BEST, JAX_NUM_CPU_DEVICES="8") == [1, 1, 2, 2, 5, 8, 8, 1]


def test_devices_that_are_no_cores_are_all_taken():
    flags = "--xla_force_host_platform_device_count=8"
    assert _found(_BEST, XLA_FLAGS=flags) == [None] * 8


def _train(parent: Path, cores: int, updates: int, *flags: str) -> tuple[str, RunFolder]:
    numbers = {"num-envs": 512, "num-steps": 4, "total-timesteps": 2048 * updates}
    settings = [f"--{name}={value}" for name, value in (numbers | {"log-interval": 2}).items()]
    arguments = (str(_CORRIDOR), f"--checkpoint-dir={parent}", *settings, *flags)
    printed = _printed(*arguments, JAX_NUM_CPU_DEVICES=str(cores))
    (folder,) = parent.iterdir()
    return printed, RunFolder(folder)


@pytest.mark.optimized
@pytest.mark.parametrize("flags", [(), ("--debug-nans",)])
def test_a_run_takes_all_cores_and_learns_the_same(tmp_path, flags):
    printed, one = _train(tmp_path / "one", 1, 6, *flags)
    assert "device  1 x cpu" in printed
    printed, four = _train(tmp_path / "four", 4, 6, *flags)
    assert "device  4 x cpu" in printed
    assert len(log(one)) == 3
    for line, expected in zip(log(four), log(one), strict=True):
        assert "train/vf_loss" in line
        assert line == pytest.approx(expected, abs=1e-3)


@pytest.mark.optimized
def test_resuming_changes_no_bit_on_several_cores(tmp_path):
    _, whole = _train(tmp_path / "whole", 4, 6)
    _train(tmp_path / "parts", 4, 2)
    _, parts = _train(tmp_path / "parts", 4, 6, "--resume", "latest")
    assert_same_run(whole, parts)
