"""What a bucket has of a run, as JSON."""

import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from ppo_mask.errors import RunError

MANIFEST = "manifest.json"
_MARKER = ".bucket.json"
_FORMAT = 1
_CHECKPOINTS = "checkpoints"
_LOGS = ("config.yaml", "metrics.jsonl", "tensorboard/", "wandb.json")


@dataclass(frozen=True)
class Manifest:
    """The files of a run.

    Attributes:
        id: no two manifests have the same; empty for what is not in a bucket.
        time: when it was written, UTC, ISO 8601.
        steps: of the complete checkpoints, in order.
        files: the checksum of each file, by its path in the run's folder.
    """

    id: str = ""
    time: str = ""
    steps: list[int] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, folder: Path) -> "Manifest":
        """Of a local folder as it is."""
        files = files_in(folder)
        checkpoints = {PurePosixPath(p).parts[1] for p in files if p.startswith(f"{_CHECKPOINTS}/")}
        return cls(steps=sorted(map(int, checkpoints)), files=files)

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
            manifest = cls(**found)
            paths = [PurePosixPath(path) for path in manifest.files]
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise RunError(f"{source} is damaged: {error}") from error
        for path in paths:
            if path.is_absolute() or ".." in path.parts:
                raise RunError(f"{source} names {path}, which is not in the run's folder")
        return manifest

    def text(self) -> str:
        """As JSON."""
        return json.dumps({"format": _FORMAT, **dataclasses.asdict(self)}, indent=1)

    def stamped(self, id: str) -> "Manifest":
        """As it is written now."""
        return dataclasses.replace(self, id=id, time=datetime.now(UTC).isoformat())

    def without(self, steps: Iterable[int]) -> "Manifest":
        """Without these checkpoints."""
        gone = set(steps)
        lost = {path for step in gone for path in of_step(self.files, step)}
        return dataclasses.replace(
            self,
            steps=[step for step in self.steps if step not in gone],
            files={path: x for path, x in self.files.items() if path not in lost},
        )


@dataclass(frozen=True)
class Marker:
    """What a local folder knows of its mirror.

    Attributes:
        ids: of the manifests that may be there, if no other process has written any: the last one
            that surely was, and those tried since.
        files: of the last one that surely was.
    """

    ids: list[str]
    files: dict[str, str]

    @classmethod
    def read(cls, folder: Path) -> "Marker":
        """Of a run's folder; one that never was in a bucket has an empty one."""
        path = folder / _MARKER
        return cls(**json.loads(path.read_text())) if path.exists() else cls([], {})

    def write(self, folder: Path) -> None:
        """Puts it into a run's folder; a kill leaves the old or the new one."""
        new = folder / f"{_MARKER}.new"
        new.write_text(json.dumps(dataclasses.asdict(self)))
        os.replace(new, folder / _MARKER)


def files_in(folder: Path) -> dict[str, str]:
    """The checksums of a run's files: of its complete checkpoints, and of all else that matters.

    What is being written has a name that begins with a dot. W&B's own files are left out: they are
    made anew from the log.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        first, *others = path.relative_to(folder).parts
        if first == _CHECKPOINTS:
            counts = bool(others) and others[0].isdecimal()
        else:
            hidden = any(part.startswith(".") for part in (first, *others))
            counts = first not in ("wandb", MANIFEST) and not hidden
        if counts and path.is_file() and not path.is_symlink():
            stat = path.stat()
            relative = path.relative_to(folder).as_posix()
            found[relative] = _checksum(path, stat.st_size, stat.st_mtime_ns)
    return found


def of_step(files: Mapping[str, str], step: int) -> dict[str, str]:
    """Those files that a checkpoint consists of."""
    return {path: x for path, x in files.items() if path.startswith(f"{_CHECKPOINTS}/{step}/")}


def is_log(path: str) -> bool:
    """Whether a file grows with the run: a resumed run cuts it back to its checkpoint."""
    return path.startswith(_LOGS)


@lru_cache(maxsize=10_000)
def _checksum(path: Path, size: int, modified: int) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
