"""Which checkpoint is the best, with evaluations and without, with stops and without."""

from pathlib import Path

import pytest

from counting import train
from ppo_mask.callbacks import Saver
from ppo_mask.checkpoints import RunDir
from same_run import log

EVALUATION, TRAINING = "eval/mean_episode_return", "train/mean_episode_return"
PLAIN = ("--no-tensorboard", "--log-interval", "3")


def returns(folder: RunDir, name: str) -> dict[int, float]:
    return {line["update"]: line[name] for line in log(folder) if name in line}


def score(folder: RunDir, step: int) -> float | None:
    return folder.checkpoint(step).about["score"]


def best(folder: RunDir) -> tuple[int, float | None]:
    found = folder.best()
    assert found is not None
    return found.step, found.about["score"]


@pytest.mark.parametrize(
    ("evaluate", "save", "stops"), [(6, 2, (7,)), (2, 6, (6,)), (4, 100, (4, 11))]
)
def test_the_best_is_what_was_evaluated_best(
    tmp_path: Path, evaluate: int, save: int, stops: tuple[int, ...]
) -> None:
    first, *more = *stops, 15
    often = ("--scored", str(evaluate), "--save-interval", str(save))
    folder = train(tmp_path, first, *PLAIN, *often)
    for updates in more:
        train(tmp_path, updates, "--resume", "latest")
    found = returns(folder, EVALUATION)
    assert [*found] == [*range(evaluate, 16, evaluate)]
    highest = max(found, key=lambda update: (found[update], update))
    assert best(folder) == (highest, found[highest])


@pytest.mark.parametrize(("save", "stop"), [(3, 8), (4, 9), (2, 13)])
def test_without_evaluations_a_stop_changes_nothing(tmp_path: Path, save: int, stop: int) -> None:
    whole = train(tmp_path / "whole", 15, *PLAIN, "--save-interval", str(save))
    cut = train(tmp_path / "cut", stop, *PLAIN, "--save-interval", str(save))
    train(tmp_path / "cut", 15, "--resume", "latest")
    assert best(cut) == best(whole)
    assert score(cut, 14 // save * save) == score(whole, 14 // save * save)
    _, highest = best(whole)
    lines = returns(whole, TRAINING)
    # A checkpoint is scored by the newest full line before it.
    scored = {x // 3 * 3 for x in range(save, 16, save)} & lines.keys()
    assert highest == max(lines[x] for x in scored)


def test_saving_by_the_clock_scores_all(tmp_path: Path) -> None:
    folder = train(tmp_path, 6, *PLAIN)
    assert best(folder) == (6, returns(folder, TRAINING)[6])
    assert Saver(folder, {}).next_update(6) is None
