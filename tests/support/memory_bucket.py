"""A bucket in this process's memory, and runs of the corridor in it: for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from corridor import DEFAULTS, TASK
from ppo_mask.checkpoints import RunFolder, open_storage
from ppo_mask.checkpoints._manifest import Manifest
from ppo_mask.runner import main

URL = "memory://bucket/runs"
STEPS_PER_UPDATE = 32
OFTEN = ("--log-interval", "3", "--save-interval", "2", "--eval-interval", "4")
OFTEN += ("--eval-episodes", "2", "--length", "3")
WRITES = ("put_file", "pipe_file", "rm_file")
READS = ("cat_file", "ls", "find", "get_file")

Objects = dict[str, Any]
Act = Callable[..., Any]


class Killed(BaseException):
    """The process is gone."""


def empty_bucket(patch: pytest.MonkeyPatch, home: Path) -> Path:
    """A new bucket, and a machine; its folder for the runs of the bucket."""
    patch.setattr(MemoryFileSystem, "store", {})
    patch.setattr(MemoryFileSystem, "pseudo_dirs", [""])
    return use_machine(patch, home)


def use_machine(patch: pytest.MonkeyPatch, home: Path) -> Path:
    """From now on this is that machine; its folder for the runs of the bucket."""
    patch.setenv("XDG_CACHE_HOME", str(home))
    return home / "ppo_mask" / "runs" / "memory" / "bucket" / "runs"


def objects() -> Objects:
    """All that is in memory."""
    return dict(MemoryFileSystem.store)


def set_objects(wanted: Objects) -> None:
    """Puts a bucket back to what it was."""
    MemoryFileSystem.store.clear()
    MemoryFileSystem.store.update(wanted)


def begin(updates: int, *more: str, url: str = URL) -> int:
    """Trains a new run."""
    new = ("--checkpoint-dir", url, "--run-name", "run", *OFTEN)
    return main(TASK, DEFAULTS, [*new, "--total-timesteps", str(updates * STEPS_PER_UPDATE), *more])


def go_on(updates: int, *more: str, run: str = f"{URL}/run") -> int:
    """Takes it further."""
    total = ("--total-timesteps", str(updates * STEPS_PER_UPDATE))
    return main(TASK, DEFAULTS, ["--resume", run, *total, *more])


def remote() -> dict[str, bytes]:
    """What the bucket has of the run: the contents of its files."""
    start = "/bucket/runs/run/"
    files = {path: x for path, x in objects().items() if path.startswith(start)}
    return {path.removeprefix(start): x.getvalue() for path, x in files.items()}


def manifest() -> Manifest:
    """What the bucket says that it has of the run."""
    found = open_storage(URL).manifest("run")
    assert found is not None
    return found


def assert_in_step(folder: RunFolder) -> None:
    """The bucket has what the folder has, and says so."""
    content = remote()
    there = Manifest.parse(content.pop("manifest.json"), "")
    assert there.steps == folder.checkpoints.steps()
    assert there.files == Manifest.of(folder.path).files
    assert content == {path: (folder.path / path).read_bytes() for path in there.files}


def intercept(patch: pytest.MonkeyPatch, names: tuple[str, ...], before: Act) -> None:
    """Calls ``before`` with each operation on the bucket, and its path, before it is done."""

    def wrap(name: str) -> Act:
        operation: Act = getattr(MemoryFileSystem, name)

        def called(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
            before(name, args[0] if name == "put_file" else path)
            return operation(self, path, *args, **kwargs)

        return called

    for name in names:
        patch.setattr(MemoryFileSystem, name, wrap(name))


def kill_at(patch: pytest.MonkeyPatch, n: int) -> None:
    """The process dies in place of the n-th operation, counted from 0."""
    done = 0

    def count(name: str, path: str) -> None:
        nonlocal done
        if done == n:
            raise Killed
        done += 1

    intercept(patch, (*WRITES, *READS), count)
