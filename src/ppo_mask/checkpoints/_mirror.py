"""A run's copy in a bucket.

Training writes to the local folder, and a push copies the folder to the bucket. As on a disk, a
checkpoint is complete if and only if its description exists. A push writes the logs first, then a
checkpoint's arrays, then the description; a deletion begins with the description. So after any
interruption every complete checkpoint in the bucket is whole, and the logs reach at least to the
newest checkpoint.

A process that begins or resumes a run writes its own name to ``writer`` in the bucket, and to
``.writer`` in the local folder. If the two names differ, another process has taken the run over:
this process writes nothing, and the bucket is newer than the local folder. If the names are equal,
the local folder is newer than the bucket.
"""

import json
import re
import secrets
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import final

from ppo_mask.checkpoints._checkpoint import DESCRIPTION, steps_in
from ppo_mask.checkpoints._files import using_disk, write_whole
from ppo_mask.checkpoints._lock import hold, this_process
from ppo_mask.checkpoints._objects import Bucket, MissingError
from ppo_mask.errors import RunError, warn

CONFIG, CHECKPOINTS = "config.yaml", "checkpoints"
_WRITER = "writer"
_CHECKPOINT = re.compile(rf"{CHECKPOINTS}/(\d+)/")
# Names of files that are being written begin with a dot. W&B's own files are made again from the
# log.
_NOT_COPIED = re.compile(rf"(.*/)?\.|({CHECKPOINTS}|wandb|writer)(/|$)")
_LOGS = (CONFIG, "metrics.jsonl", "log.txt", "tensorboard/", "wandb.json")


@final
@dataclass(frozen=True)
class Mirror:
    """A run's copy in a bucket.

    Methods raise a RunError if the bucket cannot be reached.

    Attributes:
        bucket: the bucket.
        name: the run's name.
    """

    bucket: Bucket
    name: str

    @property
    def url(self) -> str:
        """The URL of the copy."""
        return f"{self.bucket.url}/{self.name}"

    def writer(self) -> bytes | None:
        """Reads the name of the process that writes to the copy; None if there is none yet."""
        return self.bucket.read(self.name, _WRITER)

    def steps(self) -> list[int]:
        """Lists the steps of the complete checkpoints in the bucket, in order."""
        return _steps(self.bucket.files(self.name))

    def saved_at(self) -> float | None:
        """Returns the time of the newest checkpoint in the bucket; None if there is none."""
        with suppress(IndexError, KeyError, TypeError, ValueError):
            content = self.bucket.read(self.name, _description(self.steps()[-1]))
            return json.loads(content or b"")["time"]
        return None

    def pull(self, local: Path) -> None:
        """Updates a local folder from the bucket.

        The local folder stays as it is if no other process has taken the run over, and the bucket
        has no later checkpoint. Otherwise the bucket's files replace the local folder. If the old
        local folder has later checkpoints than the bucket, the old folder is kept under another
        name.

        Raises:
            RunError: there is no such run.
        """
        there, ours = self.bucket.files(self.name), _noted_writer(local)
        newest = max(steps_in(local / CHECKPOINTS), default=0)
        if not there and not newest:
            raise RunError(f"there is no run {self.url}")
        is_writer = ours is not None and ours == self.writer()
        if not there or (is_writer and newest >= max(_steps(there), default=0)):
            return
        with using_disk(local):
            local.parent.mkdir(parents=True, exist_ok=True)
            with TemporaryDirectory(dir=local.parent, prefix=".pull") as scratch:
                fresh, old = Path(scratch, "fresh"), Path(scratch, "old")
                try:
                    self._fetch(local, there, fresh)
                except MissingError:  # The run is being trained, and has just deleted a file.
                    if self.bucket.files(self.name).keys() == there.keys():
                        raise
                    self.pull(local)
                    return
                if ours and newest > max(steps_in(fresh / CHECKPOINTS), default=0):
                    old = local.with_name(f"{self.name}.{datetime.now():%Y-%m-%dT%H%M%S}")
                    warn(
                        f"{self.url} was continued without {local}, which goes further and is kept "
                        f"as {old}"
                    )
                if local.exists():
                    local.rename(old)
                fresh.rename(local)

    def take_over(self, local: Path) -> None:
        """Makes this process the only writer of the copy, and pushes the local folder.

        This push deletes from the bucket everything later than the checkpoint to resume from.
        """
        me = f"{this_process()}, {secrets.token_hex(8)}".encode()
        write_whole(local / f".{_WRITER}", me)
        # The settings go first, because a run with only its settings can begin anew.
        self.bucket.put(self.name, [CONFIG], local)
        self.bucket.write(self.name, _WRITER, me)
        self.push(local)

    def give_up(self, local: Path) -> None:
        """Deletes the copy of a run that could not begin, unless another process has written it."""
        ours = _noted_writer(local)
        with suppress(RunError):
            if self.writer() in (None, ours):
                self.bucket.delete(self.name, self.bucket.files(self.name))

    def catch_up(self, local: Path) -> None:
        """Completes the push of an earlier process, unless another has taken the run over since.

        Raises:
            RunError: a process is training the run.
        """
        ours = _noted_writer(local)
        if ours and ours == self.writer():
            with hold(local):
                self.push(local)

    def push(self, local: Path) -> None:
        """Copies a local folder to the bucket.

        Raises:
            RunError: another process has taken the run over; the bucket stays as it is.
        """
        if (writer := self.writer()) != _noted_writer(local):
            other = writer.decode() if writer else "a process that has deleted it"
            raise RunError(f"{self.url} was taken over by {other}; nothing of it was overwritten")
        with using_disk(local):
            here, there = _local_files(local), self.bucket.files(self.name)
            steps = steps_in(local / CHECKPOINTS)
            have = [step for step in steps if self._has(local, step, there)]
            # First, checkpoints later than the resumed one stop being complete. Older ones that
            # the local folder has pruned stay complete until the newer ones are in the bucket.
            newest = max(steps, default=-1)
            other = [x for x in _steps(there) if x > newest or (x in steps and x not in have)]
            self.bucket.delete(self.name, map(_description, reversed(other)))
            logs = [x for x in here if _is_log(x) or here[x] != there.get(x)]
            self.bucket.put(self.name, logs, local)
            for step in (step for step in steps if step not in have):
                files = [x for x in (local / CHECKPOINTS / str(step)).rglob("*") if x.is_file()]
                paths = [x.relative_to(local).as_posix() for x in files]
                last = _description(step)
                self.bucket.put(self.name, [path for path in paths if path != last], local)
                self.bucket.write(self.name, last, (local / last).read_bytes())
        # Also deletes parts of checkpoints that a killed push left.
        gone = [x for x in there if _is_log(x) and x not in here]
        gone += [x for x in there if (step := _step(x)) is not None and step not in steps]
        self.bucket.delete(self.name, sorted(gone, key=lambda path: not path.endswith(DESCRIPTION)))

    def _fetch(self, local: Path, there: Mapping[str, int], to: Path) -> None:
        """Downloads logs and complete checkpoints; checkpoints in ``local`` are copied instead."""
        to.mkdir()
        wanted = [path for path in there if _step(path) is None and path != _WRITER]
        for step in _steps(there):
            if self._has(local, step, there):
                path = f"{CHECKPOINTS}/{step}"
                shutil.copytree(local / path, to / path)
            else:
                wanted += [path for path in there if _step(path) == step]
        for path in wanted:
            (to / path).parent.mkdir(parents=True, exist_ok=True)
        self.bucket.get(self.name, wanted, to)

    def _has(self, local: Path, step: int, there: Mapping[str, int]) -> bool:
        """Whether bucket and local folder have the same description of a step's checkpoint."""
        path = _description(step)
        in_both = path in there and (local / path).exists()
        return in_both and (local / path).read_bytes() == self.bucket.read(self.name, path)


def _step(path: str) -> int | None:
    found = _CHECKPOINT.match(path)
    return None if found is None else int(found[1])


def _steps(files: Mapping[str, int]) -> list[int]:
    """Lists the steps of complete checkpoints, in order."""
    found = {step for path in files if (step := _step(path)) is not None}
    return sorted(step for step in found if _description(step) in files)


def _description(step: int) -> str:
    return f"{CHECKPOINTS}/{step}/{DESCRIPTION}"


def _is_log(path: str) -> bool:
    """Whether a file belongs to the logs; resuming cuts the logs back to the checkpoint."""
    return path.startswith(_LOGS)


def _local_files(local: Path) -> dict[str, int]:
    """Returns the sizes of the files to copy, other than checkpoints, by path."""
    files = (x for x in sorted(local.rglob("*")) if x.is_file() and not x.is_symlink())
    sizes = {x.relative_to(local).as_posix(): x.stat().st_size for x in files}
    return {path: sizes[path] for path in sizes if not _NOT_COPIED.match(path)}


def _noted_writer(local: Path) -> bytes | None:
    """Reads the name of the process that last trained the run in this local folder."""
    path = local / f".{_WRITER}"
    return path.read_bytes() if path.exists() else None
