"""What a bucket has of a run, as JSON, and what a local folder knows of that."""

import dataclasses
import hashlib
import json
import re
from collections.abc import Container
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from ppo_mask.checkpoints._files import write_whole
from ppo_mask.errors import RunError

MANIFEST = "manifest.json"
_MARKER = ".bucket.json"
_FORMAT = 1
_CHECKPOINT = re.compile(r"checkpoints/(\d+)/")
# What is being written has a name that begins with a dot. W&B's own files are left out: they are
# made again from the log.
_NOT_COPIED = re.compile(r"(.*/)?\.|(checkpoints|wandb|manifest\.json)(/|$)")
_LOGS = ("config.yaml", "metrics.jsonl", "tensorboard/", "wandb.json")


@dataclass(frozen=True)
class Manifest:
    """The files of a run.

    Attributes:
        id: no two manifests have the same; empty for what is not in a bucket.
        time: when it was written, UTC, ISO 8601.
        files: the checksum of each file, by its path in the run's folder.
    """

    id: str = ""
    time: str = ""
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Manifest":
        """Of a local folder as it is: its complete checkpoints, and all else that matters."""
        files: dict[str, str] = {}
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            counts = _step(name) is not None or not _NOT_COPIED.match(name)
            if counts and path.is_file() and not path.is_symlink():
                stat = path.stat()
                files[name] = _checksum(path, stat.st_size, stat.st_mtime_ns)
        return cls(files=files)

    @classmethod
    def parse(cls, content: bytes, source: str) -> "Manifest":
        """From JSON.

        Raises:
            RunError: it is none, of another format, or names files outside of a run's folder.
        """
        try:
            found: dict[str, Any] = json.loads(content)
            if found.pop("format") != _FORMAT:
                raise RunError(f"{source} is of another version of ppo_mask")
            found.pop("steps")
            manifest = cls(**found)
            paths = [PurePosixPath(path) for path in manifest.files]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{source} is damaged: {error}") from error
        for path in paths:
            if path.is_absolute() or ".." in path.parts:
                raise RunError(f"{source} names {path}, which is not in the run's folder")
        return manifest

    def text(self) -> str:
        """As JSON. The steps are for those who read it without this program."""
        content = {"format": _FORMAT, "steps": self.steps, **dataclasses.asdict(self)}
        return json.dumps(content, indent=1)

    @property
    def steps(self) -> list[int]:
        """The steps of the complete checkpoints, in order."""
        return sorted({step for path in self.files if (step := _step(path)) is not None})

    def checkpoint(self, step: int) -> dict[str, str]:
        """The files of a checkpoint."""
        return {path: x for path, x in self.files.items() if _step(path) == step}

    def without(self, steps: Container[int | None]) -> "Manifest":
        """This, but for some checkpoints."""
        left = {path: x for path, x in self.files.items() if _step(path) not in steps}
        return dataclasses.replace(self, files=left)


class Marker(NamedTuple):
    """What a local folder knows of its copy.

    Attributes:
        ids: of the manifests that may be there, if no other process has written any: the last one
            that surely was, and those tried since.
        files: of the last one that surely was.
    """

    ids: list[str]
    files: dict[str, str]


def read_marker(folder: Path) -> Marker:
    """That of a run's folder; one that never was in a bucket has an empty one."""
    path = folder / _MARKER
    return (
        Marker(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else Marker([], {})
    )


def write_marker(folder: Path, ids: list[str], files: dict[str, str]) -> None:
    """Puts it into a run's folder.

    Raises:
        RunError: it cannot be written.
    """
    write_whole(folder / _MARKER, json.dumps({"ids": ids, "files": files}).encode())


def is_log(path: str) -> bool:
    """Whether a file grows with the run: a resumed run cuts it back to its checkpoint."""
    return path.startswith(_LOGS)


def _step(path: str) -> int | None:
    found = _CHECKPOINT.match(path)
    return None if found is None else int(found[1])


@lru_cache(maxsize=10_000)
def _checksum(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
