"""A lock on a run's folder: one process at a time trains a run."""

import errno
import os
import socket
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ppo_mask.errors import RunError

try:
    import fcntl
except ImportError:  # Windows.
    fcntl = None

LOCK = ".lock"
_held: set[Path] = set()


def this_process() -> str:
    """Names this process for an error message."""
    return f"process {os.getpid()} on {socket.gethostname()}"


@contextmanager
def hold(folder: Path) -> Generator[None]:
    """Keeps other processes and threads from training a run, until the ``with`` block ends.

    On a file system without locks, or without permission to write, other processes are not kept
    out.

    Args:
        folder: the run's folder.

    Raises:
        RunError: another process, or another thread of this process, is training the run.
    """
    folder = folder.resolve()
    # The system's lock belongs to the process, so it does not exclude another thread.
    if folder in _held:
        raise _taken(folder, this_process())
    descriptor = _lock(folder)
    _held.add(folder)
    try:
        yield
    finally:
        _held.discard(folder)
        if descriptor is not None:
            os.close(descriptor)


def _lock(folder: Path) -> int | None:
    """Locks a file that stays in the folder; its descriptor, None if there can be no such file."""
    if fcntl is None:
        return None
    try:
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError:
        return None
    try:
        # Not flock: child processes would inherit the lock, and may outlive this process.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.truncate(descriptor, 0)
        os.write(descriptor, this_process().encode())
    except OSError as error:  # If nobody has the lock: no locks here, or the disk is full.
        if error.errno in (errno.EACCES, errno.EAGAIN):
            holder = os.read(descriptor, 200).decode(errors="replace")
            os.close(descriptor)
            raise _taken(folder, holder or "another process") from error
    return descriptor


def _taken(folder: Path, holder: str) -> RunError:
    return RunError(
        f"run {folder} is being trained by {holder}; wait until it ends, or give another "
        "--checkpoint-dir to train a copy of it"
    )
