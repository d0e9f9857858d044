"""A program whose task has a loss, an optimizer and an advantage estimator of its own."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import optax
import pytest

from corridor import DEFAULTS, TASK
from hosts import updates
from ppo_mask.checkpoints import RunFolder
from ppo_mask.ppo import Algorithm, ppo_loss
from ppo_mask.runner import RunConfig, main
from same_run import assert_same_run, log

OFTEN = ("--log-interval", "2", "--save-interval", "4")


def loss(network: Any, batch: Any, config: Any) -> Any:
    """PPO's, and a metric more."""
    total, metrics = ppo_loss(network, batch, config)
    return total, metrics | {"rows": jnp.float32(batch.action.shape[0])}


def one_step(
    reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, *others: Any
) -> Any:
    """The temporal difference of a single step."""
    gamma, _ = others
    return reward + gamma * jnp.where(terminated, 0, next_value) - value


def algorithm(config: RunConfig[Any]) -> Algorithm:
    """All of its own; the rate is the command line's."""
    return Algorithm(optax.sgd(config.training.lr, momentum=0.9), loss, one_step)


OWN = dataclasses.replace(TASK, algorithm=algorithm)


@pytest.mark.slow
def test_runs_train_with_it_and_resume_exactly(tmp_path: Path) -> None:
    parent = ("--checkpoint-dir", str(tmp_path))
    assert main(OWN, DEFAULTS, [*parent, "--run-name", "whole", *OFTEN, *updates(12)]) == 0
    assert main(OWN, DEFAULTS, [*parent, "--run-name", "halves", *OFTEN, *updates(4)]) == 0
    assert main(OWN, DEFAULTS, ["--resume", str(tmp_path / "halves"), *updates(12)]) == 0
    assert_same_run(RunFolder(tmp_path / "halves"), RunFolder(tmp_path / "whole"))
    logged = log(RunFolder(tmp_path / "whole"))[-1]
    assert logged["train/rows"] > 0
    assert "train/lr" not in logged  # The optimizer's own.


@pytest.mark.slow
def test_settings_reach_it(tmp_path: Path) -> None:
    parent = ("--checkpoint-dir", str(tmp_path), *OFTEN, *updates(4))
    for name, rate in (("slow", "1e-6"), ("fast", "1e-1")):
        assert main(OWN, DEFAULTS, [*parent, "--run-name", name, "--lr", rate]) == 0
    logs = [log(RunFolder(tmp_path / name)) for name in ("slow", "fast")]
    slow, fast = (abs(lines[-1]["train/approx_kl"]) for lines in logs)
    assert fast > 100 * slow


def test_another_optimizer_cannot_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = ("--checkpoint-dir", str(tmp_path), "--run-name", "run")
    assert main(OWN, DEFAULTS, [*parent, *OFTEN, *updates(4)]) == 0
    capsys.readouterr()
    assert main(TASK, DEFAULTS, ["--resume", str(tmp_path / "run"), *updates(8)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "has nothing for learner.opt_state.1.count, this run asks for int32[]" in error
