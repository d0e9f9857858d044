"""A bucket in this process's memory, and runs that count in it: for tests."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from counting import DEFAULTS, STEPS_PER_UPDATE, TASK
from ppo_mask.checkpoints import RunDir
from ppo_mask.runner import main

URL = "memory://bucket/runs"
OFTEN = ("--log-interval", "3", "--save-interval", "2", "--scored", "4")
WRITES = ("put_file", "pipe_file", "rm_file")

Objects = dict[str, Any]
Act = Callable[..., Any]


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


def assert_in_step(folder: RunDir) -> None:
    """The bucket has what the folder has."""
    content = remote()
    assert content.pop("writer") == (folder.path / ".writer").read_bytes()
    assert content == contents(folder)


def contents(folder: RunDir) -> dict[str, bytes]:
    """What is in a run's folder, and in the bucket if it has all of it."""
    files = (path for path in folder.path.rglob("*") if path.is_file())
    found = {path.relative_to(folder.path).as_posix(): path.read_bytes() for path in files}
    return {path: found[path] for path in found if not path.startswith((".", "wandb/"))}


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
