"""Runs that others are at, that never were saved, or whose rewind broke off."""

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from corridor import DEFAULTS, TASK, Corridor
from ppo_mask.callbacks import JsonLines, _saver
from ppo_mask.checkpoints import RunFolder, _lock, _orbax, hold
from ppo_mask.errors import RunError
from ppo_mask.runner import Task, execute, main, make_plan
from ppo_mask.training import Trainer
from same_run import assert_same_run, log
from waiting import wait_until

Output = pytest.CaptureFixture[str]
PROGRAM = Path(__file__).parents[1] / "support" / "corridor.py"
STEPS_PER_UPDATE = 32
OFTEN = ("--run-name", "run", "--save-interval", "2", "--log-interval", "1")


def flags(parent: Path, updates: int, *more: str) -> list[str]:
    total = ("--total-timesteps", str(updates * STEPS_PER_UPDATE))
    return ["--checkpoint-dir", str(parent), *total, *more]


def train(parent: Path, updates: int, *more: str) -> int:
    return main(TASK, DEFAULTS, flags(parent, updates, *more))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("run", ["--resume", "latest"]),
        ("run", ["--resume", "{run}/checkpoints/{last}", "--rewind"]),
        ("run", ["--run-name", "run"]),
        ("run-seed1", ["--run-name", "run", "--num-seeds", "2"]),
    ],
)
def test_one_process_at_a_time_trains_a_run(
    tmp_path: Path, capsys: Output, name: str, again: list[str]
) -> None:
    never = "1000000" if "--run-name" in again else "2"  # New runs meet one without a checkpoint.
    often = ("--run-name", name, "--save-interval", never)
    command = [sys.executable, str(PROGRAM), *flags(tmp_path, 10_000_000, *often)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    folder = RunFolder(tmp_path / name)
    at_work = folder.metrics.exists if never != "2" else folder.checkpoints.steps
    try:
        wait_until(at_work, [process])
        process.send_signal(signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)  # It has stopped.
        before = folder.checkpoints.steps()
        last = before[-1] if before else 0
        words = [word.format(run=folder.path, last=last) for word in again]
        assert train(tmp_path, last + 20, *words) == 2
        error = capsys.readouterr().err
        assert error.startswith(f"error: run {folder.path} is being trained by process ")
        assert f"process {process.pid} on" in error
        assert error.count("\n") == 1
        assert folder.checkpoints.steps() == before
    finally:
        process.kill()
        process.wait()
    assert train(tmp_path, last + 20, "--resume", str(folder.path), "--rewind") == 0
    assert not (folder.path / ".lock").exists()


def test_a_lock_keeps_threads_and_other_names_out(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    taken = pytest.raises(RunError, match=f"by process {os.getpid()}")
    with hold(tmp_path), taken, hold(tmp_path / "link"):
        pass
    with hold(tmp_path / "link"):
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
    assert not any(tmp_path.iterdir())
    monkeypatch.setattr(_lock, "fcntl", None)
    with hold(tmp_path):
        pass


def test_what_was_trained_on_meanwhile_is_not_overwritten(tmp_path: Path) -> None:
    assert train(tmp_path, 2, *OFTEN) == 0
    folder = RunFolder(tmp_path / "run")
    plan = make_plan(DEFAULTS, flags(tmp_path, 6, "--resume", "latest"), "")
    assert train(tmp_path, 4, "--resume", "latest") == 0
    with pytest.raises(RunError, match="has been trained by another process meanwhile"):
        execute(TASK, plan)
    assert folder.checkpoints.newest() == 4


class Broken(Corridor):
    """Cannot be stepped."""

    def step(self, key: Any, state: Any, action: Any) -> Any:
        raise AttributeError("no such field")


def fail_to_begin(parent: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A run of the corridor that ends before its first update is done."""
    if how == "step":
        broken = Task(lambda settings: Broken(settings.length), metrics=TASK.metrics)
        with pytest.raises(AttributeError):
            main(broken, DEFAULTS, flags(parent, 6, *OFTEN, "--length", "4"))
        return
    with monkeypatch.context() as patch:
        interrupt(patch, how)
        assert main(TASK, DEFAULTS, flags(parent, 6, *OFTEN, "--length", "4")) == 130


def interrupt(patch: pytest.MonkeyPatch, how: str) -> None:
    """Ctrl+C before anything is compiled, or while it is."""
    owner, name = (Trainer, "train") if how == "at once" else (JsonLines, "on_start")
    original = getattr(owner, name)

    def interrupted(*arguments: Any, **options: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        return original(*arguments, **options)

    patch.setattr(owner, name, interrupted)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["at once", "compiling", "step"])
@pytest.mark.parametrize(
    "again",
    [
        ("--resume", "latest"),
        ("--resume", "{run}"),
        ("--resume", "run"),
        ("--resume",),
        (*OFTEN, "--length", "4"),
    ],
)
def test_an_empty_run_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, again: tuple[str, ...]
) -> None:
    fail_to_begin(tmp_path, monkeypatch, how)
    folder = RunFolder(tmp_path / "run")
    assert folder.is_empty
    assert train(tmp_path, 6, *[word.format(run=folder.path) for word in again]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert train(tmp_path / "whole", 6, *OFTEN, "--length", "4") == 0
    assert_same_run(folder, RunFolder(tmp_path / "whole" / "run"))


@pytest.mark.slow
def test_an_empty_run_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    assert train(whole, 6, *OFTEN) == 0
    for left in ([], ["config.yaml"], ["config.yaml", "metrics.jsonl", "tensorboard"]):
        folder = RunFolder(tmp_path / str(len(left)) / "run")
        (folder.path / "checkpoints" / ".saving-1.orbax-checkpoint-tmp").mkdir(parents=True)
        (folder.path / ".lock").write_text("process 1")
        for name in left:
            if (whole / "run" / name).is_file():
                (folder.path / name).write_bytes((whole / "run" / name).read_bytes())
        if left:
            assert main(TASK, DEFAULTS, ["--resume", str(folder.path)]) == 0
        else:
            assert train(folder.path.parent, 6, *OFTEN) == 0
        assert_same_run(folder, RunFolder(whole / "run"))


def test_an_empty_run_does_not_hide_a_saved_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert train(tmp_path, 2, *OFTEN, "--run-name", "saved") == 0
    fail_to_begin(tmp_path, monkeypatch, "step")
    assert train(tmp_path, 4, "--resume", "latest") == 0
    assert RunFolder(tmp_path / "saved").checkpoints.newest() == 4
    assert RunFolder(tmp_path / "run").is_empty


def test_an_empty_run_is_begun_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_to_begin(tmp_path / "old", monkeypatch, "step")
    assert train(tmp_path / "new", 6, "--resume", str(tmp_path / "old" / "run")) == 0
    assert RunFolder(tmp_path / "new" / "run").checkpoints.newest() == 6
    assert RunFolder(tmp_path / "old" / "run").is_empty


def everything(folder: RunFolder) -> dict[str, bytes]:
    files = (path for path in folder.path.rglob("*") if path.is_file())
    return {str(path.relative_to(folder.path)): path.read_bytes() for path in files}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["save", "step", "log", "at once", "compiling"])
def test_a_rewind_that_saves_nothing_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    assert train(tmp_path, 6, *OFTEN, "--length", "4") == 0
    folder = RunFolder(tmp_path / "run")
    before = everything(folder)
    rewind = ("--resume", str(folder.checkpoints.path(2)), "--rewind", "--lr", "0.5")
    monkeypatch.setattr(_saver, "_PAUSES", ())

    def refuse(*_: object, **__: object) -> None:
        raise OSError("full")

    with monkeypatch.context() as patch:
        if how == "save":
            patch.setattr(_orbax, "write", refuse)
            assert train(tmp_path, 4, *rewind) == 1
        elif how == "step":
            broken = Task(lambda settings: Broken(settings.length), metrics=TASK.metrics)
            with pytest.raises(AttributeError):
                main(broken, DEFAULTS, flags(tmp_path, 9, *rewind))
        elif how == "log":
            patch.setattr(JsonLines, "on_log", refuse)
            assert train(tmp_path, 9, *rewind) == 1
        else:
            interrupt(patch, how)
            assert train(tmp_path, 9, *rewind) == 130
    assert everything(folder) == before
    assert train(tmp_path, 6, *rewind[:3]) == 0
    assert train(tmp_path / "whole", 6, *OFTEN, "--length", "4") == 0
    assert_same_run(folder, RunFolder(tmp_path / "whole" / "run"))
    assert not folder.checkpoints.rewound.exists()


def test_a_rewind_that_is_killed_is_undone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert train(tmp_path, 6, *OFTEN) == 0
    folder = RunFolder(tmp_path / "run")
    whole = log(folder)
    rename = Path.rename
    for moment in range(4):  # Before each of what is renamed, and after all.
        left = moment

        def killed(path: Path, to: Path) -> Path:
            nonlocal left
            left -= 1
            if left < 0:
                raise KeyboardInterrupt
            return rename(path, to)

        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", killed)
            with suppress(KeyboardInterrupt):
                folder.rewind(2)
        folder.metrics.write_text("")  # As a process does that is under way.
        if moment:
            assert folder.checkpoints.rewound.is_dir()
            oldest = str(folder.checkpoints.path(6))
            assert main(TASK, DEFAULTS, ["--resume", oldest]) == 0  # There is nothing to do.
            assert log(folder) == whole
        else:
            folder.metrics.write_text("".join(json.dumps(line) + "\n" for line in whole))
        assert folder.checkpoints.steps() == [2, 4, 6]
