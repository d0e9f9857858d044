"""Worker processes, each of which steps some of a session's environments."""

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from collections import deque
from itertools import pairwise
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, no_type_check

import cloudpickle
import numpy as np

from ppo_mask.adapters.from_gymnasium import _stepper
from ppo_mask.adapters.from_gymnasium._stepper import UnfitError, lay_out, make_arrays


class WorkerError(Exception):
    """What broke in a worker: a line to be read after the environment's name."""


class Workers:
    """What a ``Stepper`` of all environments is, with workers that share the memory of its arrays.

    A worker is started as a program of its own: not forked, which JAX does not survive, and not by
    ``multiprocessing``, which would run the user's script again in each.
    """

    def __init__(self, make: Any, layout: Any, num_workers: int) -> None:
        """Starts the workers, and has each make its environments.

        Raises:
            UnfitError: the function that makes an environment cannot be sent to another process.
            WorkerError: a worker could not make them.
        """
        try:
            sent = cloudpickle.dumps(make)
        except Exception as error:
            raise UnfitError(
                f"what makes it cannot be sent to a worker ({error}); num_workers=0 needs none"
            ) from error
        memory = _shared_memory(lay_out(layout)[1])
        self.arrays = make_arrays(layout, mmap.mmap(memory, 0))
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []
        self._begun: deque[int] = deque()
        parts = [_split(rows, min(num_workers, layout["num_envs"])) for rows in layout["groups"]]
        try:
            for groups in zip(*parts, strict=True):
                self._start(memory)
                setup = (sys.path, sent, layout, groups)
                self._workers[-1][1].send_bytes(pickle.dumps(setup))
            self._await_all()
        except BaseException:
            self.close()
            raise
        finally:
            os.close(memory)

    def _start(self, memory: int) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            program = [sys.executable, "-P", _stepper.__file__, str(theirs.fileno()), str(memory)]
            process = subprocess.Popen(
                program,
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # So that Ctrl+C is this process's alone.
            )
        self._workers.append((process, Connection(ours.detach())))

    @no_type_check
    def reset(self) -> None:
        """See ``Stepper``."""
        for group in (*self._begun,):  # In a rollout that was broken off.
            self.finish(group)
        self._tell_all(b"reset")
        self._await_all()

    @no_type_check
    def begin(self, group: int) -> None:
        """Has the workers begin a step of a group; they go on while this process does."""
        self._tell_all(bytes([group]))
        self._begun.append(group)

    @no_type_check
    def finish(self, group: int) -> None:
        """Waits for the step of a group that has begun, and for those that began before it."""
        while group in self._begun:
            self._await_all()
            self._begun.popleft()

    def close(self) -> None:
        """Ends the workers."""
        for _, connection in self._workers:
            connection.close()
        for process, _ in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(2)
            process.kill()
            process.wait()
        self._workers.clear()

    @no_type_check
    def _tell_all(self, command: bytes) -> None:
        for _, connection in self._workers:
            with contextlib.suppress(OSError):  # Told when it is waited for.
                connection.send_bytes(command)

    @no_type_check
    def _await_all(self) -> None:
        wrong: list[str] = []
        for number, (process, connection) in enumerate(self._workers):
            try:
                reply = connection.recv_bytes().decode()
            except (EOFError, OSError):
                code = process.wait()
                reply = f": worker {number} of {len(self._workers)} is gone (exit code {code})"
            wrong += [reply] if reply else []
        if wrong:
            raise WorkerError(wrong[0])


def _split(rows: range, count: int) -> list[range]:
    """So many ranges, which together are the rows."""
    bounds = np.linspace(rows.start, rows.stop, count + 1).astype(int).tolist()
    return [range(*pair) for pair in pairwise(bounds)]


def _shared_memory(size: int) -> int:
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("ppo_mask")
    else:
        handle, name = tempfile.mkstemp()
        Path(name).unlink()
        memory = handle
    os.ftruncate(memory, size)
    return memory
