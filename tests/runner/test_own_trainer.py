"""A trainer of one's own gets a run's folder, logs, checkpoints and resume."""

from pathlib import Path

import pytest

from counting import DEFAULTS, TASK, Bias, flags, train
from ppo_mask.checkpoints import load_policy, read_description
from ppo_mask.runner import main
from same_run import assert_same_run, log


def test_a_trainer_of_ones_own(tmp_path: Path) -> None:
    often = ("--log-interval", "3", "--save-interval", "2", "--scored", "4")
    whole = train(tmp_path / "whole", 8, *often)
    cut = train(tmp_path, 5, *often)
    assert_same_run(train(tmp_path, 8, "--resume", "latest"), whole)
    lines = log(cut)
    assert [x["update"] for x in lines if "train/lr" in x] == [3, 6, 8]
    assert len({x["train/mean_episode_return"] for x in lines if "train/lr" in x}) == 3
    best = cut.checkpoints.best()
    assert best in (4, 8)
    assert read_description(cut.checkpoints.path(best))["evaluated"]
    assert isinstance(load_policy(cut.path, [Bias]).model, Bias)


@pytest.mark.parametrize("flag", ["--num-seeds 2", "--auto-tune"])
def test_what_only_ppo_can_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str
) -> None:
    assert main(TASK, DEFAULTS, flags(tmp_path, 2, *flag.split())) == 2
    said = f"error: {flag.split()[0]} needs the library's Trainer, not a CountingTrainer\n"
    assert capsys.readouterr().err == said
    assert not [*tmp_path.iterdir()]
