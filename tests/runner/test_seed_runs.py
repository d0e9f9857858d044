"""Several seeds of the command line are several runs."""

from pathlib import Path

import pytest

from counting import DEFAULTS, TASK, flags
from ppo_mask.checkpoints import RunDir
from ppo_mask.runner import _main as run, main
from same_run import assert_same_run

OFTEN = ("--log-interval", "2", "--scored", "3")


def test_each_seed_is_the_run_that_it_would_be_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, alone = tmp_path / "both", tmp_path / "alone"
    several = flags(both, 6, "--run-name", "run", "--num-seeds", "2", "--seed", "7", *OFTEN)
    assert main(TASK, DEFAULTS, several) == 0
    for seed in (7, 8):
        name = f"run-seed{seed}"
        words = flags(alone, 6, "--run-name", name, "--seed", str(seed), *OFTEN)
        assert main(TASK, DEFAULTS, words) == 0
        ours, theirs = RunDir(both / name), RunDir(alone / name)
        assert ours.config.read_text() == theirs.config.read_text()
        assert_same_run(ours, theirs)
        best, other = ours.best(), theirs.best()
        assert best is not None
        assert other is not None
        assert best.step == other.step
        # One of them goes on alone.
        for parent in (both, alone):
            assert main(TASK, DEFAULTS, flags(parent, 8, "--resume", name)) == 0
        assert_same_run(ours, theirs)


def no_mesh(num_devices: int | None) -> None:
    raise ValueError("not for several seeds, which use one device")


def test_more_devices_than_they_could_share_are_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = TASK
    monkeypatch.setattr(run, "make_mesh", no_mesh)
    assert main(task, DEFAULTS, flags(tmp_path, 1, "--num-seeds", "2")) == 0
    assert sorted(x.name[-6:] for x in tmp_path.iterdir()) == ["-seed0", "-seed1"]


def test_no_folder_is_made_if_one_of_them_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run-seed1").mkdir()
    (tmp_path / "run-seed1" / "something").touch()
    words = flags(tmp_path, 1, "--run-name", "run", "--num-seeds", "2")
    assert main(TASK, DEFAULTS, words) == 2
    assert "there is a run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed1"]
