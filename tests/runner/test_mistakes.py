"""Mistakes in a task, each with the one line that the command line ends in."""

import dataclasses
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest

import ppo_mask as pm
from corridor import DEFAULTS, TASK
from hosts import updates
from ppo_mask.runner import main
from ppo_mask.runner._task import make_parts


def gymnasium_env(_: Any) -> Any:
    return pytest.importorskip("gymnasium").make("CartPole-v1")


class Forgetful(pm.training.AbstractCurriculum):
    """A memory that is lost in the first update."""

    def init(self, model: Any) -> Any:
        return jnp.float32(1)

    def __call__(self, env: Any, progress: Any, memory: Any) -> Any:
        return env

    def update(self, memory: Any, info: Any, ended: Any) -> Any:
        return None


TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "an environment of gymnasium's": (
        {"make_env": gymnasium_env},
        "env must be an AbstractEnv, got TimeLimit; it is one of gymnasium's",
    ),
    "no environment": ({"make_env": lambda _: None}, "env must be an AbstractEnv, got NoneType"),
    "one callback": (
        {"callbacks": lambda _: pm.History()},
        "Task.callbacks must give a list of callbacks, got History",
    ),
    "no callbacks": ({"callbacks": lambda _: [3]}, "a list of callbacks, got [3]"),
    "a column of nothing": (
        {"console_columns": {"won": "stats/nope"}},
        "the console's column 'won' shows stats/nope, which is no metric",
    ),
    "a memory that is lost": (
        {"curriculum": lambda _: Forgetful()},
        "the curriculum may change values alone of its memory",
    ),
}


@pytest.mark.parametrize("name", TASKS)
def test_a_wrong_task_is_one_line(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts, message = TASKS[name]
    task = dataclasses.replace(TASK, **parts)
    assert main(task, DEFAULTS, ["--checkpoint-dir", str(tmp_path), *updates(2)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: ")
    assert message in line
    assert not list(tmp_path.iterdir())


def test_columns_may_be_of_the_library_too() -> None:
    columns = {"furthest": "stats/furthest", "reward": "train/mean_reward"}
    make_parts(dataclasses.replace(TASK, console_columns=columns), DEFAULTS)
