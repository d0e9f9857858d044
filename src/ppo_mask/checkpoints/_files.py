"""Files that a kill or a full disk leaves whole."""

import os
import zlib
from contextlib import suppress
from pathlib import Path

from ppo_mask.errors import RunError


def write_whole(path: Path, content: bytes) -> None:
    """Writes or replaces a file; whatever happens meanwhile, the old or the new one is there.

    Args:
        path: of the file.
        content: all of it.

    Raises:
        RunError: it cannot be written.
    """
    path = path.resolve()  # What a link points to is replaced, not the link.
    # TensorBoard reads every file with "tfevents" in its name: this one must not be left as one.
    new = path.with_name(f".{zlib.crc32(os.fsencode(path.name)):x}.new")
    try:
        new.write_bytes(content)
        new.replace(path)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise RunError(f"cannot write {path}: {error.strerror}") from error
