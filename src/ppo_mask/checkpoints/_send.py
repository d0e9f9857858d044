"""A checkpoint's way from the first process of a run to those that do not see its disk."""

from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar
from zipfile import ZipFile

from ppo_mask.checkpoints._store import restore
from ppo_mask.devices.processes import bytes_from_first, is_first, together
from ppo_mask.errors import RunError

Tree = TypeVar("Tree")


def restore_from_first(path: Path, like: Tree) -> Tree:
    """Restores in all processes a checkpoint that is on the first one's disk.

    The others get its files over JAX, and compare their checksums as they would on a disk of their
    own. All processes must call it.

    Args:
        path: of the checkpoint; only the first process looks there.
        like: as for :func:`restore`.

    Raises:
        RunError: as :func:`restore`, in all processes, whichever failed.
    """
    restored: list[Tree] = []

    def read() -> bytes:
        restored.append(restore(path, like))  # What cannot be used is not sent.
        return _pack(path)

    content = bytes_from_first(read, "restore the checkpoint")
    return together(
        lambda: restored[0] if is_first() else _unpack(content, path.name, like),
        "restore the checkpoint that the first sent",
    )


def _pack(path: Path) -> bytes:
    packed = BytesIO()
    try:
        with ZipFile(packed, "w", strict_timestamps=False) as archive:
            for file in sorted(path.rglob("*")):
                archive.write(file, file.relative_to(path))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error
    return packed.getvalue()


def _unpack(content: bytes, name: str, like: Tree) -> Tree:
    try:
        with TemporaryDirectory(prefix="ppo_mask-") as scratch:
            path = Path(scratch, name)
            ZipFile(BytesIO(content)).extractall(path)
            return restore(path, like)
    except OSError as error:
        raise RunError(f"cannot keep the checkpoint for a moment: {error}") from error
