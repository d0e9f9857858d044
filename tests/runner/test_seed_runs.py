"""Several seeds of the command line are several runs."""

from pathlib import Path

import pytest
import yaml

import counting
from corridor import DEFAULTS, TASK
from ppo_mask.checkpoints import RunFolder, load_policy, read_arrays
from ppo_mask.runner import _main as run, main
from same_run import log

EVALUATION = "eval/mean_episode_return"


def _flags(parent: Path, *more: str) -> list[str]:
    return ["--checkpoint-dir", str(parent), "--log-interval", "2", "--eval-interval", "3", *more]


@pytest.mark.slow
def test_each_seed_is_the_run_that_it_would_be_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    both, alone = tmp_path / "both", tmp_path / "alone"
    several = _flags(both, "--run-name", "run", "--num-seeds", "2", "--seed", "7")
    with monkeypatch.context() as patch:
        patch.setattr(run, "make_mesh", no_mesh)
        assert main(TASK, DEFAULTS, several) == 0
    shown = capsys.readouterr().out
    assert "± seeds" in shown
    assert "finished after 6 updates" in shown
    for seed in (7, 8):
        name = f"run-seed{seed}"
        assert main(TASK, DEFAULTS, _flags(alone, "--run-name", name, "--seed", str(seed))) == 0
        ours, theirs = RunFolder(both / name), RunFolder(alone / name)
        assert yaml.safe_load(ours.config.read_text()) == yaml.safe_load(theirs.config.read_text())
        for line, other in zip(log(ours), log(theirs), strict=True):
            assert line == pytest.approx(other, abs=1e-4)
        mine, others = (read_arrays(x.checkpoints.path(6)) for x in (ours, theirs))
        assert mine.keys() == others.keys()
        for array_name, array in mine.items():
            assert array == pytest.approx(others[array_name], abs=1e-4), array_name
        load_policy(ours.path)
        scores = {x["update"]: x[EVALUATION] for x in log(ours) if EVALUATION in x}
        assert ours.checkpoints.best() == max(scores, key=lambda update: (scores[update], update))
    # One of them goes on alone.
    second = RunFolder(both / "run-seed8")
    resumed = ["--resume", str(second.path), "--total-timesteps", str(32 * 8)]
    assert main(TASK, DEFAULTS, resumed) == 0
    assert second.checkpoints.steps()[-1] == 8
    assert [x["update"] for x in log(second) if "train/entropy" in x] == [2, 4, 6, 8]


def no_mesh(num_devices: int | None) -> None:
    raise ValueError("not for several seeds, which use one device")


def test_more_devices_than_they_could_share_are_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = counting.task_of_seeds(monkeypatch)
    monkeypatch.setattr(run, "make_mesh", no_mesh)
    assert main(task, counting.DEFAULTS, counting.flags(tmp_path, 1, "--num-seeds", "2")) == 0
    assert sorted(x.name[-6:] for x in tmp_path.iterdir()) == ["-seed0", "-seed1"]


def test_no_folder_is_made_if_one_of_them_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run-seed1").mkdir()
    (tmp_path / "run-seed1" / "something").touch()
    words = counting.flags(tmp_path, 1, "--run-name", "run", "--num-seeds", "2")
    assert main(counting.task_of_seeds(monkeypatch), counting.DEFAULTS, words) == 2
    assert "there is a run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed1"]
