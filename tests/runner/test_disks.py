"""Disks that are full, slow to come back, or cannot be written to; and where runs are put."""

import errno
import json
import os
import resource
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from counting import DEFAULTS, TASK, Bias, flags
from linux import only_linux
from ppo_mask.callbacks import _saver
from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.checkpoints import RunDir, _orbax, load_policy
from ppo_mask.checkpoints._files import write_whole
from ppo_mask.errors import RunError, describe_error
from ppo_mask.runner import main
from ppo_mask.runner.commands import write
from same_run import assert_same_run

Output = pytest.CaptureFixture[str]
OFTEN = ("--run-name", "run", "--save-interval", "2", "--log-interval", "1")


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_saver, "_PAUSES", (0.0, 0.0))


def train(parent: Path, updates: int, *more: str) -> int:
    return main(TASK, DEFAULTS, flags(parent, updates, *more))


@contextmanager
def files_limited_to(size: int) -> Generator[None]:
    """Writing more to a file fails, as on a full disk; Python ignores the signal."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def fail(patch: pytest.MonkeyPatch, error: Exception, tries: Callable[[int], bool]) -> None:
    """Those tries to save fail, counted from 1."""
    write, count = _orbax.write, 0

    def act(*arguments: Any) -> None:
        nonlocal count
        count += 1
        if tries(count):
            raise error
        write(*arguments)

    patch.setattr(_orbax, "write", act)


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ESTALE, "Stale file handle"), "Stale file handle"),
        (ValueError("RESOURCE_EXHAUSTED: [os_error_code='28']"), "No space left on device"),
        (MemoryError(), "MemoryError"),
    ],
)
def test_a_run_outlives_a_disk_that_fails_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, error: Exception, reason: str
) -> None:
    with monkeypatch.context() as patch:
        fail(patch, error, lambda n: n in (2, 3))
        assert train(tmp_path, 8, *OFTEN) == 0
    folder = RunDir(tmp_path / "run")
    printed = capsys.readouterr().err.splitlines()
    assert [line for line in printed if "save" in line] == [
        f"warning: cannot save {folder.path}/checkpoints/{n}: {reason}; the last good checkpoint "
        f"is {folder.path}/checkpoints/2; the next checkpoint is the next try"
        for n in (4, 6)
    ]
    assert folder.steps() == [2, 8]
    assert train(tmp_path / "whole", 8, *OFTEN) == 0
    assert_same_run(folder, RunDir(tmp_path / "whole" / "run"))


@pytest.mark.parametrize("saved", [2, 0])
def test_an_end_that_cannot_be_saved_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output, saved: int
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with monkeypatch.context() as patch:
        fail(patch, full, lambda n: n > saved // 2)
        assert train(tmp_path, 5, *OFTEN) == 1
    folder = RunDir(tmp_path / "run")
    kept = "nothing had been saved yet"
    if saved:
        kept = f"the last good checkpoint is {folder.path}/checkpoints/{saved}"
    last = capsys.readouterr().err.splitlines()[-1]
    said = f"error: cannot save {folder.path}/checkpoints/5: No space left on device; {kept}"
    assert last.startswith(said)
    assert folder.steps() == [saved][: saved // 2]


def test_the_end_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail(monkeypatch, OSError(errno.EIO, "bad"), lambda n: 1 < n < 4)
    assert train(tmp_path, 3, *OFTEN) == 0
    assert RunDir(tmp_path / "run").steps() == [2, 3]


def test_a_seed_that_cannot_be_saved_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    write = _orbax.write

    def act(path: Path, *arguments: Any) -> None:
        if "run-seed0" in str(path):
            raise OSError(errno.EIO, "bad")
        write(path, *arguments)

    monkeypatch.setattr(_orbax, "write", act)
    words = flags(tmp_path, 3, *OFTEN, "--num-seeds", "2")
    assert main(TASK, DEFAULTS, words) == 1
    assert RunDir(tmp_path / "run-seed1").steps() == [2, 3]
    assert f"error: cannot save {tmp_path}/run-seed0/checkpoints/3" in capsys.readouterr().err


def test_a_disk_that_is_full_all_the_time(tmp_path: Path, capsys: Output) -> None:
    assert train(tmp_path, 4, *OFTEN) == 0
    capsys.readouterr()
    with files_limited_to(1500):
        assert train(tmp_path, 12, "--resume", str(tmp_path / "run")) == 1
    printed = capsys.readouterr().err
    assert "Traceback" not in printed
    folder = RunDir(tmp_path / "run")
    error = printed.splitlines()[-1]
    assert error.startswith(f"error: cannot save {folder.path}/checkpoints/12: File too large")
    assert f"warning: cannot write {folder.metrics}: File too large; training goes on" in printed
    assert folder.steps() == [2, 4]
    assert train(tmp_path, 12, "--resume", "latest") == 0
    assert train(tmp_path / "whole", 12, *OFTEN) == 0
    assert_same_run(folder, RunDir(tmp_path / "whole" / "run"))


def test_a_log_catches_up_when_there_is_room(tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "log"
    path.write_text("before\n")
    log = LogFile(path)
    with files_limited_to(20):
        for n in range(5):
            log.append(f"line {n}\n".encode())
    assert capsys.readouterr().err.count("warning") == 1
    log.append(b"line 5\n")
    log.close()
    assert path.read_text().splitlines() == ["before", *(f"line {n}" for n in range(6))]
    with files_limited_to(20):
        log.append(b"lost")
        log.close()
    assert f"the end of {path} is lost" in capsys.readouterr().err


def test_a_full_disk_refuses_a_new_run(tmp_path: Path, capsys: Output) -> None:
    with files_limited_to(10):
        assert train(tmp_path, 4, *OFTEN) == 2
    printed = capsys.readouterr().err
    assert printed == f"error: cannot write {tmp_path}/run/config.yaml: File too large\n"
    assert train(tmp_path, 4, *OFTEN) == 0


def test_a_file_that_finds_no_room_is_not_left_torn(tmp_path: Path) -> None:
    path = tmp_path / "curves.png"
    with files_limited_to(1000), pytest.raises(RunError, match=r"curves\.png: File too large"):
        write(str(path), b"x" * 5000, force=False)
    assert not path.exists()
    write(str(path), b"x" * 5000, force=False)


def test_a_file_is_on_the_disk_before_it_replaces_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    monkeypatch.setattr("os.fsync", lambda _: calls.append("fsync"))
    monkeypatch.setattr(Path, "replace", lambda *_: calls.append("replace"))
    write_whole(tmp_path / "log", b"x")
    assert calls == ["fsync", "replace", "fsync"]


@only_linux
def test_a_command_onto_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert train(tmp_path, 1, *OFTEN) == 0
    with open("/dev/full", "w") as full, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", full)
        assert main(TASK, DEFAULTS, ["inspect", str(tmp_path / "run")]) == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == "error: No space left on device"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (
            PermissionError(errno.EACCES, "Permission denied", "a"),
            "cannot use a: Permission denied",
        ),
        (OSError("b.so: cannot open shared object file"), "b.so: cannot open shared object file"),
        (ConnectionRefusedError(errno.ECONNREFUSED, "refused"), "refused"),
    ],
)
def test_an_error_of_the_system_is_said_as_it_is(error: OSError, said: str) -> None:
    assert describe_error(error).partition(" (test")[0] == said


def test_an_error_of_the_system_without_a_file_says_in_which_line() -> None:
    with pytest.raises(OSError, match="refused") as raised:
        raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")
    assert describe_error(raised.value).startswith("refused (test_disks.py, line ")


@only_linux
def test_a_copy_of_a_run_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    assert train(tmp_path, 2, *OFTEN) == 0
    copy = RunDir(tmp_path / "copies" / "run")
    with files_limited_to(100), pytest.raises(RunError) as caught:
        RunDir(tmp_path / "run").fork(2, copy)
    assert str(caught.value).startswith(f"cannot use {copy.path}: ")
    assert str(caught.value).count("File too large") == 1
    assert not any(copy.path.parent.iterdir())


@pytest.mark.parametrize(
    ("parent", "name"), [("a?{b}", "a b #%20{}"), ("new\nline", "ü'$(x)"), ("~", "x" * 200)]
)
def test_runs_of_any_name_in_any_folder(tmp_path: Path, parent: str, name: str) -> None:
    assert train(tmp_path / parent, 2, *OFTEN, "--run-name", name) == 0
    assert train(tmp_path / parent, 4, "--resume", name) == 0
    copies = tmp_path / "copies: 1"
    assert train(copies, 6, "--resume", str(tmp_path / parent / name)) == 0
    folder = RunDir(copies / name)
    assert folder.steps() == [2, 4, 6]
    assert load_policy(folder.path, networks=[Bias]).model.network.hyperparameters == {
        "num_actions": 3
    }
    assert [json.loads(x)["update"] for x in folder.metrics.open()] == [*range(1, 7)]


def test_a_name_that_is_too_long_is_refused(tmp_path: Path, capsys: Output) -> None:
    assert train(tmp_path, 2, "--run-name", "x" * 300) == 2
    assert "File name too long" in capsys.readouterr().err
    with pytest.raises(RunError, match="cannot save"):
        RunDir(tmp_path / ("x" * 300)).save(0, {}, {})
