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
