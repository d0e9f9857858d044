"""Which checkpoint is the best, with evaluations and without, with stops and without."""

import json
from pathlib import Path

import numpy as np
import pytest

from corridor import DEFAULTS, TASK
from ppo_mask.callbacks import Saver
from ppo_mask.checkpoints import RunFolder, read_arrays, read_description
from ppo_mask.runner import main

STEPS_PER_UPDATE = 32
EVALUATION, TRAINING = "eval/mean_episode_return", "train/mean_episode_return"


def train(parent: Path, updates: int, *more: str) -> RunFolder:
    total = ("--total-timesteps", str(updates * STEPS_PER_UPDATE))
    flags = ("--checkpoint-dir", str(parent), "--no-tensorboard", *total, *more)
    assert main(TASK, DEFAULTS, [*flags]) == 0
    return RunFolder(parent / "run")


def new(parent: Path, updates: int, *more: str) -> RunFolder:
    often = ("--log-interval", "3", "--eval-episodes", "4", "--lr", "0.03", "--length", "4")
    return train(parent, updates, "--run-name", "run", *often, *more)


def returns(folder: RunFolder, name: str) -> dict[int, float]:
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return {line["update"]: line[name] for line in lines if name in line}


def best(folder: RunFolder) -> tuple[int, float | None]:
    step = folder.checkpoints.best()
    assert step is not None
    return step, read_description(folder.checkpoints.path(step))["score"]


@pytest.mark.parametrize(
    ("evaluate", "save", "stops"),
    [(6, 2, ()), (6, 2, (7,)), (2, 6, (6,)), (3, 5, (4, 9, 11)), (4, 100, (4, 11)), (1, 7, ())],
)
def test_the_best_is_what_was_evaluated_best(
    tmp_path: Path, evaluate: int, save: int, stops: tuple[int, ...]
) -> None:
    often = ("--eval-interval", str(evaluate), "--save-interval", str(save))
    first, *more = *stops, 15
    folder = new(tmp_path, first, *often)
    for updates in more:
        train(tmp_path, updates, "--resume", "latest")
    found = returns(folder, EVALUATION)
    assert [*found] == [*range(evaluate, 16, evaluate)]
    highest = max(found, key=lambda update: (found[update], update))
    assert best(folder) == (highest, found[highest])


@pytest.mark.slow
@pytest.mark.parametrize(("save", "stop"), [(2, 7), (3, 8), (4, 7), (4, 8), (4, 9)])
def test_without_evaluations_a_stop_changes_nothing(tmp_path: Path, save: int, stop: int) -> None:
    whole = new(tmp_path / "whole", 15, "--save-interval", str(save))
    cut = new(tmp_path / "cut", stop, "--save-interval", str(save))
    train(tmp_path / "cut", 15, "--resume", "latest")
    assert best(cut) == best(whole)
    step, score = best(whole)
    lines = returns(whole, TRAINING)
    assert score == max(lines[x] for x in lines if x <= step // 3 * 3 and x % 3 == 0)
    ours, theirs = (read_arrays(x.checkpoints.path(step)) for x in (cut, whole))
    for name in theirs:
        np.testing.assert_array_equal(ours[name], theirs[name])


def test_evaluations_count_from_when_there_are_some(tmp_path: Path) -> None:
    folder = new(tmp_path, 6, "--save-interval", "2")
    before = best(folder)[0]
    train(tmp_path, 8, "--resume", "latest", "--eval-interval", "7")
    assert before != 7
    assert best(folder) == (7, returns(folder, EVALUATION)[7])


@pytest.mark.slow
def test_each_seed_has_its_best(tmp_path: Path) -> None:
    often = ("--eval-interval", "3", "--save-interval", "5", "--num-seeds", "2")
    new(tmp_path, 12, *often)
    for seed in (0, 1):
        folder = RunFolder(tmp_path / f"run-seed{seed}")
        found = returns(folder, EVALUATION)
        highest = max(found, key=lambda update: (found[update], update))
        assert best(folder) == (highest, found[highest])


def test_saving_by_the_clock_scores_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = new(tmp_path, 6)
    assert best(folder) == (6, returns(folder, TRAINING)[6])
    assert Saver(folder.checkpoints, {}).next_update(6) is None
