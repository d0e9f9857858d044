"""A CPU's cores as devices: how many there are, how many a run takes, what it learns there."""

from pathlib import Path
from unittest.mock import Mock

import jax
import pytest

from own_process import python
from ppo_mask.checkpoints import RunDir
from ppo_mask.devices import cpu
from ppo_mask.networks import MLPActorCritic, as_model
from ppo_mask.ppo import PPO
from ppo_mask.runner._main import _can_split
from same_run import log

_CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"
_FREE = {"XLA_FLAGS": None, "JAX_NUM_CPU_DEVICES": None, "JAX_PLATFORMS": "cpu"}


@pytest.mark.parametrize(("cores", "devices"), [(3, 3), (20, 16)])
def test_there_is_a_device_for_each_core(cores, devices):
    program = (
        f"import os; os.sched_getaffinity = lambda _: range({cores}); "
        "from ppo_mask.devices import cpu; cpu.make_devices(); import jax; print(jax.devices())"
    )
    assert python("-c", program, **_FREE).stdout.count("CpuDevice") == devices


@pytest.mark.parametrize(
    ("flags", "number", "asks"),
    [("--xla_force_host_platform_device_count=3", -1, False), ("", 3, False), ("", -1, True)],
    ids=["set for XLA", "set for JAX", "JAX has started"],
)
def test_devices_that_are_there_or_asked_for_stay(flags, number, asks, monkeypatch):
    monkeypatch.setenv("XLA_FLAGS", flags)
    monkeypatch.setattr(cpu, "_number", lambda: number)
    monkeypatch.setattr(jax.config, "update", update := Mock(wraps=jax.config.update))
    cpu.make_devices()
    assert update.called == asks


@pytest.mark.parametrize(
    ("num_envs", "others", "count"),
    [
        *[(64, {}, 1), (255, {}, 1), (256, {}, 2), (4096, {}, 8)],
        *[(400, {}, 2), (1000, {}, 5)],  # No multiples of 3, and of 7 or 6.
        (4096, {"num_steps": 1, "num_minibatches": 4}, 8),
        (256, {"num_steps": 1, "num_minibatches": 256}, 1),  # Of one environment's one step each.
    ],
)
def test_each_core_gets_enough_environments_and_an_equal_share(
    num_envs, others, count, monkeypatch
):
    monkeypatch.setattr(cpu, "_number", lambda: 8)
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    config = PPO(num_envs, **others)
    model = as_model(MLPActorCritic(1, 2, 1, 1, key=jax.random.key(0)))
    assert cpu.best_count(num_envs, lambda count: _can_split(config, model, count)) == count


@pytest.mark.parametrize(("number", "backend"), [(-1, "cpu"), (8, "gpu")])
def test_devices_that_are_no_cores_are_all_taken(number, backend, monkeypatch):
    monkeypatch.setattr(cpu, "_number", lambda: number)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    assert cpu.best_count(4096, lambda count: True) is None


def _train(parent: Path, cores: int, *flags: str) -> tuple[str, RunDir]:
    numbers = {"num-envs": 512, "num-steps": 4, "total-timesteps": 2048 * 6, "log-interval": 2}
    settings = [f"--{name}={value}" for name, value in numbers.items()]
    arguments = (str(_CORRIDOR), f"--checkpoint-dir={parent}", *settings, *flags)
    printed = python(*arguments, **_FREE | {"JAX_NUM_CPU_DEVICES": str(cores)}).stdout
    (folder,) = parent.iterdir()
    return printed, RunDir(folder)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    printed, folder = _train(tmp_path_factory.mktemp("cores") / "one", 1)
    assert "device  1 x cpu" in printed
    return log(folder)


@pytest.mark.optimized
@pytest.mark.parametrize("flags", [(), ("--debug-nans",)])
def test_a_run_takes_all_cores_and_learns_the_same(tmp_path, one, flags):
    printed, four = _train(tmp_path / "four", 4, *flags)
    assert "device  4 x cpu" in printed
    assert len(one) == 3
    for line, expected in zip(log(four), one, strict=True):
        assert "train/vf_loss" in line
        assert line == pytest.approx(expected, abs=1e-3)
