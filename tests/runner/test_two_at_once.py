"""Runs that others are at, or that never were saved."""

import dataclasses
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from counting import DEFAULTS, TASK, flags, train
from ppo_mask.callbacks import JsonLines
from ppo_mask.checkpoints import RunDir, _lock
from ppo_mask.checkpoints._lock import hold
from ppo_mask.errors import RunError
from ppo_mask.runner import execute, main, make_plan
from ppo_mask.training import Callback, Progress, Run, Trainer, TrainState
from same_run import assert_same_run

Output = pytest.CaptureFixture[str]
OFTEN = ("--save-interval", "2", "--log-interval", "1")
NEW = (*OFTEN, "--run-name", "run")


@pytest.mark.parametrize(
    "again",
    [
        ("--resume", "latest"),
        ("--resume", "{run}/checkpoints/2", "--rewind"),
        ("--run-name", "run"),
    ],
)
def test_a_run_that_is_being_trained_is_refused(
    tmp_path: Path, capsys: Output, again: tuple[str, ...]
) -> None:
    folder = RunDir(tmp_path / "run")
    if "--resume" in again:
        train(tmp_path, 4, *OFTEN)
    else:
        folder.path.mkdir()  # Has no checkpoint yet.
    before = folder.steps()
    words = flags(tmp_path, 20, *(word.format(run=folder.path) for word in again))
    capsys.readouterr()
    with hold(folder.path):
        assert main(TASK, DEFAULTS, words) == 2
        error = capsys.readouterr().err
        assert error.startswith(
            f"error: run {folder.path} is being trained by process {os.getpid()} on "
        )
        assert error.count("\n") == 1
        assert folder.steps() == before
    assert main(TASK, DEFAULTS, words) == 0


def test_a_lock_keeps_threads_and_other_names_out(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    taken = pytest.raises(RunError, match=f"by process {os.getpid()}")
    with hold(tmp_path), taken, hold(tmp_path / "link"):
        pass
    with hold(tmp_path / "link"):
        pass


def test_a_lock_is_not_shared_with_another_process(tmp_path: Path) -> None:
    program = "import fcntl, sys; file = open(sys.argv[1], 'w+'); fcntl.lockf(file, fcntl.LOCK_SH)"
    command = [sys.executable, "-c", f"{program}; print(flush=True); sys.stdin.read()"]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([*command, str(tmp_path / ".lock")], **pipes) as other:
        assert other.stdout is not None
        other.stdout.readline()
        with pytest.raises(RunError, match="is being trained by"), hold(tmp_path):
            pass
        other.communicate()
    with hold(tmp_path):
        pass


@pytest.mark.parametrize("name", ["ENOLCK", "ENOSYS", "EOPNOTSUPP", "EINVAL"])
def test_a_file_system_without_locks_will_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def lock(*_: object) -> None:
        raise OSError(getattr(_lock.errno, name), "no locks")

    monkeypatch.setattr(_lock.fcntl, "lockf", lock)
    with hold(tmp_path), hold(tmp_path / "missing"):
        pass
    assert not (tmp_path / "missing").exists()
    monkeypatch.setattr(_lock, "fcntl", None)
    with hold(tmp_path):
        pass


def test_what_was_trained_on_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    folder = train(tmp_path, 2, *OFTEN)
    plan = make_plan(DEFAULTS, flags(tmp_path, 6, "--resume", "latest"), "")
    train(tmp_path, 4, "--resume", "latest")
    with pytest.raises(RunError, match="has been trained by another process meanwhile"):
        execute(TASK, plan)
    assert folder.steps()[-1] == 4


class Broken(Callback):
    """Fails before anything is saved."""

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        raise AttributeError("no such field")


def fail_to_begin(parent: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A run that ends before its first update is done."""
    words = flags(parent, 6, *NEW, "--length", "4")
    if how == "failing":
        with pytest.raises(AttributeError):
            main(dataclasses.replace(TASK, callbacks=lambda _: [Broken()]), DEFAULTS, words)
        return
    # Ctrl+C before anything is compiled, or while it is.
    owner, name = (Trainer, "train") if how == "at once" else (JsonLines, "on_start")
    original = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        assert main(TASK, DEFAULTS, words) == 130


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ("at once", ("--resume", "latest")),
        ("compiling", ("--resume", "{run}")),
        ("failing", (*NEW, "--length", "4")),
    ],
)
def test_an_empty_run_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, again: tuple[str, ...]
) -> None:
    fail_to_begin(tmp_path, monkeypatch, how)
    folder = RunDir(tmp_path / "run")
    assert folder.is_empty
    words = flags(tmp_path, 6, *[word.format(run=folder.path) for word in again])
    assert main(TASK, DEFAULTS, words) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert_same_run(folder, train(tmp_path / "whole", 6, *OFTEN, "--length", "4"))


def test_an_empty_run_does_not_hide_a_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(TASK, DEFAULTS, flags(tmp_path, 2, *OFTEN, "--run-name", "saved")) == 0
    fail_to_begin(tmp_path, monkeypatch, "failing")
    train(tmp_path, 4, "--resume", "latest")
    assert RunDir(tmp_path / "saved").steps()[-1] == 4
    assert RunDir(tmp_path / "run").is_empty


def test_an_empty_run_is_begun_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_begin(tmp_path / "old", monkeypatch, "failing")
    new = train(tmp_path / "new", 6, "--resume", str(tmp_path / "old" / "run"))
    assert new.steps()[-1] == 6
    assert RunDir(tmp_path / "old" / "run").is_empty


def test_a_run_with_checkpoints_that_this_version_cannot_see_is_not_begun_anew(
    tmp_path: Path, capsys: Output
) -> None:
    folder = train(tmp_path, 2, *OFTEN)
    description = folder.checkpoint(2).path / "description.json"
    (description.parent / "description").mkdir()
    description.rename(description.parent / "description" / "metadata")
    for again in (("--resume", "latest"), NEW):
        assert main(TASK, DEFAULTS, flags(tmp_path, 4, *again)) == 2
    error = capsys.readouterr().err
    assert "has no complete checkpoint" in error
    assert f"there is a run {folder.path} already" in error
