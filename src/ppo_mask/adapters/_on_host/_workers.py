"""Worker processes. Each worker steps some of a batch's environments."""

import contextlib
import mmap
import os
import pickle
import socket
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from multiprocessing.connection import Connection
from typing import Any

import cloudpickle
import numpy as np

from ppo_mask.adapters._on_host import _stepper
from ppo_mask.adapters._on_host._stepper import Layout, UnfitError, record_of


class WorkerError(Exception):
    """A worker failed; callers prepend the environment's name to the message."""


class Workers:
    """A ``Stepper`` that distributes the environments over worker processes.

    Each worker runs a program of its own. A fork would break JAX, and a process of
    ``multiprocessing`` would run the user's script again.
    """

    def __init__(self, make: Any, layout: Layout, num_envs: int, num_workers: int) -> None:
        """Starts the workers, which make their environments."""
        try:
            sent = cloudpickle.dumps(make)
        except Exception as error:
            raise UnfitError(
                f"what makes it cannot be sent to a worker ({error}); num_workers=0 needs none"
            ) from error
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []
        record = record_of(layout)
        bounds = np.linspace(0, num_envs, min(num_workers, num_envs) + 1).astype(int).tolist()
        with tempfile.TemporaryFile() as memory:
            memory.truncate(num_envs * record.itemsize)
            self.arrays = np.ndarray(num_envs, record, mmap.mmap(memory.fileno(), 0))
            try:
                for rows in pairwise(bounds):
                    setup = (sys.path, sent, tuple(layout), num_envs, *rows)
                    self._start(memory.fileno(), pickle.dumps(setup))
                self._await_all()
            except BaseException:
                self.close()
                raise

    def _start(self, memory: int, setup: bytes) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            numbers = theirs.fileno(), memory, os.getpid()
            process = subprocess.Popen(
                [sys.executable, "-P", _stepper.__file__, *map(str, numbers)],
                pass_fds=numbers[:2],
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # So that Ctrl+C reaches this process only.
            )
        connection = Connection(ours.detach())
        self._workers.append((process, connection))
        connection.send_bytes(setup)

    def reset(self) -> None:
        self._tell_all(b"reset")

    def step(self) -> None:
        self._tell_all(b"step")

    def close(self) -> None:
        """Ends the workers."""
        for _, connection in self._workers:
            connection.close()
        patience_ends = time.monotonic() + 2
        for process, _ in self._workers:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, patience_ends - time.monotonic()))
        for process, _ in self._workers:
            process.kill()
            process.wait()
        self._workers.clear()

    def _tell_all(self, command: bytes) -> None:
        for _, connection in self._workers:
            with contextlib.suppress(OSError):  # `_await_all` reports a lost worker.
                connection.send_bytes(command)
        self._await_all()

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
