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
from ppo_mask.runner import RunConfig, main, merge, resolve
from ppo_mask.runner._task import make_trainer
from same_run import assert_same_run, log

OFTEN = ("--log-interval", "2", "--save-interval", "4")


def loss(network: Any, batch: Any, config: Any) -> Any:
    """PPO's, and a metric more."""
    total, metrics = ppo_loss(network, batch, config)
    return total, metrics | {"rows": jnp.float32(batch.advantage.shape[0])}


def one_step(
    reward: Any, value: Any, next_value: Any, terminated: Any, truncated: Any, *others: Any
) -> Any:
    """The temporal difference of a single step."""
    gamma, _ = others
    return reward + gamma * jnp.where(terminated, 0, next_value) - value


def algorithm(config: RunConfig[Any]) -> Algorithm:
    """All of its own; the rate is the command line's."""
    return Algorithm(optax.sgd(config.ppo.learning_rate, momentum=0.9), loss, one_step)


OWN = dataclasses.replace(TASK, algorithm=algorithm)


@pytest.mark.slow
def test_runs_train_with_it_and_resume_exactly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parent = ("--checkpoint-dir", str(tmp_path))
    assert main(OWN, DEFAULTS, [*parent, "--run-name", "whole", *OFTEN, *updates(12)]) == 0
    assert main(OWN, DEFAULTS, [*parent, "--run-name", "halves", *OFTEN, *updates(4)]) == 0
    assert main(OWN, DEFAULTS, ["--resume", str(tmp_path / "halves"), *updates(12)]) == 0
    assert_same_run(RunFolder(tmp_path / "halves"), RunFolder(tmp_path / "whole"))
    logged = log(RunFolder(tmp_path / "whole"))[-1]
    assert logged["train/rows"] > 0
    assert "train/lr" not in logged  # The optimizer's own.
    # With another optimizer it cannot be resumed.
    capsys.readouterr()
    assert main(TASK, DEFAULTS, ["--resume", str(tmp_path / "whole"), *updates(16)]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "has nothing for learner.opt_state.1.count, this run asks for int32[]" in error


def test_settings_reach_it() -> None:
    config = merge(DEFAULTS, {"learning_rate": 0.25})
    config = resolve(config)
    trainer = make_trainer(OWN, config, TASK.make_env(config.environment), None, None)
    optimizer = trainer.algorithm.optimizer  # pyright: ignore
    updates, _ = optimizer.update(jnp.ones(()), optimizer.init(jnp.zeros(())))
    assert updates == -0.25
