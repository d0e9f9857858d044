"""Several seeds of the command line are several runs."""

import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
import yaml

import counting
from corridor import DEFAULTS, TASK
from ppo_mask.checkpoints import RunFolder, load_policy, read_arrays
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import _main as run, main
from ppo_mask.training import Trainer, TrainState
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
    monkeypatch.setattr(run, "make_mesh", no_mesh)
    monkeypatch.setattr(run, "init_seeds", lambda trainer, make_model, keys: state_of_two(keys))
    monkeypatch.setattr(run, "train_seeds", lambda *_, **__: None)
    task = dataclasses.replace(counting.TASK, trainer=Trainer)
    assert main(task, counting.DEFAULTS, _flags(tmp_path, "--num-seeds", "2")) == 0
    assert sorted(x.name[-6:] for x in tmp_path.iterdir()) == ["-seed0", "-seed1"]


def state_of_two(keys: jax.Array) -> TrainState:
    trainer = counting.CountingTrainer(None, PPOConfig())
    states = [trainer.init(counting.Bias(3, key=key), key) for key in keys]
    return jax.tree.map(lambda *each: jnp.stack(each), *states)


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
