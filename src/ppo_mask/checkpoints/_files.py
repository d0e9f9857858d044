"""Writes files so that a kill, a power cut or a full disk leaves them whole."""

import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

from ppo_mask.errors import RunError


def check_path(path: Path) -> None:
    """Checks that Orbax and TensorStore, which write the arrays, read the path as it is meant.

    Raises:
        RunError: it has a character that stands for something else there.
    """
    if found := re.search(r"[][*\\\ud800-\udfff]|/gs:", str(path)):
        raise RunError(f"checkpoints cannot be in {path}: {found[0]!r} means something else there")


@contextmanager
def using_disk(folder: Path) -> Generator[None]:
    """Reports what the disk refuses as a RunError of one line; ``folder`` if no file is known."""
    try:
        yield
    except shutil.Error as error:  # Of several files: the first one's reason is enough.
        raise RunError(f"cannot use {folder}: {error.args[0][0][-1]}") from error
    except OSError as error:
        path = error.filename or folder
        raise RunError(f"cannot use {path}: {error.strerror or error}") from error


def write_whole(path: Path, content: bytes) -> None:
    """Writes or replaces a file; a kill or a power cut leaves the old file or the new one whole.

    Args:
        path: the file's path.
        content: the whole content.

    Raises:
        RunError: the file cannot be written.
    """
    path = path.resolve()  # Replaces a link's target, not the link.
    new = path.with_name(f".{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file)
        new.replace(path)
        flush_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise RunError(f"cannot write {path}: {error.strerror}") from error


def flush(folder: Path) -> None:
    """Flushes a folder's files to the disk, so that a power cut loses nothing."""
    for path in folder.rglob("*"):
        if path.is_dir():
            flush_folder(path)
        else:
            with path.open("rb+") as file:
                os.fsync(file)
    flush_folder(folder)


def flush_folder(folder: Path) -> None:
    """Flushes a folder's own list of file names to the disk."""
    with suppress(OSError):  # Not all file systems can do this.
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
