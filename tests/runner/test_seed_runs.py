"""Several seeds of the command line are several runs."""

import json
from pathlib import Path

import pytest
import yaml

from corridor import DEFAULTS, TASK
from ppo_mask.checkpoints import RunFolder, load_policy, read_arrays
from ppo_mask.runner import _main as run, main


def _log(folder: RunFolder) -> list[dict[str, float]]:
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    return [{k: v for k, v in x.items() if k != "train/steps_per_second"} for x in lines]


def _flags(parent: Path, *more: str) -> list[str]:
    return ["--checkpoint-dir", str(parent), "--log-interval", "2", "--eval-interval", "3", *more]


@pytest.mark.optimized
def test_each_seed_is_the_run_that_it_would_be_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    both, alone = tmp_path / "both", tmp_path / "alone"
    several = _flags(both, "--run-name", "run", "--num-seeds", "2", "--seed", "7")
    assert main(TASK, DEFAULTS, several) == 0
    shown = capsys.readouterr().out
    assert "± seeds" in shown
    assert "finished after 6 updates" in shown
    for seed in (7, 8):
        name = f"run-seed{seed}"
        assert main(TASK, DEFAULTS, _flags(alone, "--run-name", name, "--seed", str(seed))) == 0
        ours, theirs = RunFolder(both / name), RunFolder(alone / name)
        assert yaml.safe_load(ours.config.read_text()) == yaml.safe_load(theirs.config.read_text())
        for line, other in zip(_log(ours), _log(theirs), strict=True):
            assert line == pytest.approx(other, abs=1e-4)
        mine, others = (read_arrays(x.checkpoints.path(6)) for x in (ours, theirs))
        assert mine.keys() == others.keys()
        for array_name, array in mine.items():
            assert array == pytest.approx(others[array_name], abs=1e-4), array_name
        load_policy(ours.path)


@pytest.mark.optimized
def test_one_of_them_goes_on_alone(tmp_path: Path) -> None:
    assert main(TASK, DEFAULTS, _flags(tmp_path, "--num-seeds", "2")) == 0
    second = RunFolder(max(tmp_path.iterdir()))
    assert second.path.name.endswith("-001-seed1")
    resumed = ["--resume", str(second.path), "--total-timesteps", str(32 * 8)]
    assert main(TASK, DEFAULTS, resumed) == 0
    assert second.checkpoints.steps()[-1] == 8
    assert [x["update"] for x in _log(second) if "train/entropy" in x] == [2, 4, 6, 8]


def test_more_devices_than_they_could_share_are_no_hindrance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_mesh(num_devices: int | None) -> None:
        raise ValueError("not for several seeds, which use one device")

    monkeypatch.setattr(run, "make_mesh", no_mesh)
    monkeypatch.setattr(run, "train_seeds", lambda *_, **__: None)
    assert main(TASK, DEFAULTS, _flags(tmp_path, "--num-seeds", "2")) == 0


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--resume", "latest"], "--num-seeds does not go with --resume, which is about one run"),
        (["--auto-tune"], "--num-seeds does not go with --auto-tune"),
        (["--profile"], "--num-seeds does not go with --profile"),
        (["--debug-nans"], "--num-seeds does not go with --debug-nans"),
        (["--num-devices", "1"], "--num-seeds does not go with --num-devices"),
        (["--wandb"], "--num-seeds does not go with --wandb"),
        (["--num-seeds", "0"], "--num-seeds must be at least 1, got 0"),
    ],
)
def test_what_is_about_one_run_is_refused(
    more: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--checkpoint-dir", str(tmp_path), "--num-seeds", "2", *more]
    assert main(TASK, DEFAULTS, flags) == 2
    assert message in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_no_folder_is_made_if_one_of_them_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run-seed1").mkdir()
    (tmp_path / "run-seed1" / "something").touch()
    assert main(TASK, DEFAULTS, _flags(tmp_path, "--run-name", "run", "--num-seeds", "2")) == 2
    assert "there is a run" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["run-seed1"]
