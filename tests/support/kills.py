"""Processes that are killed in place of one of their operations: for tests."""

import builtins
import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

_FILES = ((os, ("rename", "replace", "unlink", "mkdir", "rmdir")), (io, ("open",)))
_FILES += ((builtins, ("open",)),)
_OBJECTS = ("put_file", "pipe_file", "rm_file", "cat_file", "ls", "find", "get_file")


class Killed(BaseException):
    """The process is gone."""


@contextmanager
def killed_at(n: int, what: str) -> Iterator[list[int]]:
    """A process dies in place of its n-th operation, counted from 0; the list is empty if it lives.

    Whatever it would do after that, such as tidying up, it does not do either.

    Args:
        n: the number.
        what: "files", of which all writes count, or "objects" of the bucket in memory.
    """
    done, dead = 0, list[int]()

    def wrap(operation: Callable[..., Any], is_open: bool) -> Callable[..., Any]:
        def act(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            reads = is_open and not {*"wax+"} & {*options.get("mode", [*arguments, "r"][1])}
            if not reads:
                if done == n:
                    dead.append(n)
                if dead:
                    raise Killed
                done += 1
            return operation(*arguments, **options)

        return act

    places = _FILES if what == "files" else ((MemoryFileSystem, _OBJECTS),)
    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        for owner, names in places:
            for name in names:
                patch.setattr(owner, name, wrap(getattr(owner, name), name == "open"))
        yield dead
