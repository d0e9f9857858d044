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
from pathlib import Path
from typing import Any, no_type_check

import cloudpickle
import numpy as np

from ppo_mask.adapters.from_gymnasium import _stepper
from ppo_mask.adapters.from_gymnasium._stepper import UnfitError, lay_out, make_arrays


class WorkerError(Exception):
    """A worker failed; callers prepend the environment's name to the message."""


class Workers:
    """A ``Stepper`` that distributes the environments over worker processes.

    Each worker runs a program of its own. A fork would break JAX, and a process of
    ``multiprocessing`` would run the user's script again.
    """

    def __init__(self, make: Any, layout: Any, num_workers: int) -> None:
        """Starts the workers, which make their environments."""
        try:
            sent = cloudpickle.dumps(make)
        except Exception as error:
            raise UnfitError(
                f"what makes it cannot be sent to a worker ({error}); num_workers=0 needs none"
            ) from error
        memory = _shared_memory(lay_out(layout)[1])
        self.arrays = make_arrays(layout, mmap.mmap(memory, 0))
        self._workers: list[tuple[subprocess.Popen[bytes], Connection]] = []
        num_envs: int = layout["num_envs"]
        bounds = np.linspace(0, num_envs, min(num_workers, num_envs) + 1).astype(int).tolist()
        try:
            for first, last in pairwise(bounds):
                self._start(memory)
                setup = (sys.path, sent, layout, first, last)
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
            numbers = theirs.fileno(), memory, os.getpid()
            program = [sys.executable, "-P", _stepper.__file__, *map(str, numbers)]
            process = subprocess.Popen(
                program,
                pass_fds=(theirs.fileno(), memory),
                stdin=subprocess.DEVNULL,
                start_new_session=True,  # So that Ctrl+C reaches this process only.
            )
        self._workers.append((process, Connection(ours.detach())))

    @no_type_check
    def reset(self) -> None:
        self._tell_all(b"reset")

    @no_type_check
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
        self.kill()
        for process, _ in self._workers:
            process.wait()
        self._workers.clear()

    def kill(self) -> None:
        """Ends the workers at once; another thread may wait for them."""
        for process, _ in self._workers:
            process.kill()

    @no_type_check
    def _tell_all(self, command: bytes) -> None:
        for _, connection in self._workers:
            with contextlib.suppress(OSError):  # `_await_all` reports a lost worker.
                connection.send_bytes(command)
        self._await_all()

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


def _shared_memory(size: int) -> int:
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("ppo_mask")
    else:
        memory, name = tempfile.mkstemp()
        Path(name).unlink()
    os.ftruncate(memory, size)
    return memory
