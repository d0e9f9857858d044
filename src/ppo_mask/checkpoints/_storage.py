"""Stores runs in a local folder and, if the storage has a URL, in a bucket as well.

Training writes to the local folder, and a push copies the folder to the bucket. As on a disk, a
checkpoint is complete if and only if its description exists. A push writes the logs first, then a
checkpoint's arrays, then the description; a deletion begins with the description. So after any
interruption every complete checkpoint in the bucket is whole, and the logs reach at least to the
newest checkpoint.

A process that begins or resumes a run writes its own name to ``writer`` in the bucket, and to
``.writer`` in the local folder. If the two names differ, another process has taken the run over:
this process writes nothing, and the bucket is newer than the local folder. If the names are equal,
the local folder is newer than the bucket.

Of several processes, only process 0 writes. Each other process reads into a folder of its own,
which is deleted when the process ends.
"""

import atexit
import json
import re
import secrets
import shutil
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import final

from ppo_mask.checkpoints._files import write_whole
from ppo_mask.checkpoints._lock import hold, this_process
from ppo_mask.checkpoints._objects import Bucket, MissingError, open_bucket
from ppo_mask.checkpoints._run_folder import RunFolder, cache_folder
from ppo_mask.checkpoints._store import DESCRIPTION, read_description
from ppo_mask.devices.processes import is_process_0
from ppo_mask.errors import RunError, warn

_WRITER = "writer"
_CHECKPOINT = re.compile(r"checkpoints/(\d+)/")
# Names of files that are being written begin with a dot. W&B's own files are made again from the
# log.
_NOT_COPIED = re.compile(r"(.*/)?\.|(checkpoints|wandb|writer)(/|$)")
_LOGS = ("config.yaml", "metrics.jsonl", "tensorboard/", "wandb.json")


def is_url(place: str) -> bool:
    """Whether a place is a URL, not a local path."""
    return "://" in place


def open_storage(place: str) -> "Storage":
    """Opens the storage of runs at a path, or at a URL such as ``gs://bucket/runs``.

    Raises:
        RunError: ``place`` is a URL of another form, or the package for its scheme is missing.
    """
    if not is_url(place):
        return Storage(Path(place).absolute())
    bucket, parts = open_bucket(place)
    folder = (cache_folder() / "runs" if is_process_0() else _scratch()).joinpath(*parts)
    return Storage(folder, bucket)


@contextmanager
def _using_disk() -> Generator[None]:
    try:
        yield
    except OSError as error:
        path = error.filename or cache_folder()
        raise RunError(f"cannot use {path}: {error.strerror or error}") from error


@cache
@_using_disk()
def _scratch() -> Path:
    folder = mkdtemp(prefix="ppo_mask-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@final
@dataclass(frozen=True)
class Storage:
    """A folder of runs, and perhaps its copy in a bucket.

    Methods that use the bucket raise a RunError if the bucket cannot be reached. Without a bucket,
    these methods copy nothing.

    Attributes:
        folder: the local folder, with a folder for each run.
        bucket: the bucket that holds the copy; None if there is no bucket.
    """

    folder: Path
    bucket: Bucket | None = None

    @property
    def url(self) -> str | None:
        """The bucket's URL; None without a bucket."""
        return None if self.bucket is None else self.bucket.url

    def place(self, name: str) -> str:
        """Returns the URL of a run or, without a bucket, the path."""
        return str(self.folder / name) if self.url is None else f"{self.url}/{name}"

    def runs(self) -> dict[str, str]:
        """Returns the URLs or paths of the runs in the folder and in the bucket, by name."""
        here = [path.name for path in self.folder.glob("[!.]*")]
        there = [] if self.bucket is None else self.bucket.folders()
        return {name: self.place(name) for name in (*here, *there)}

    def newest(self) -> str:
        """Returns the run with the latest save or, if no run has a checkpoint, the latest start.

        Raises:
            RunError: there is no run.
        """
        times: list[tuple[bool, float, str]] = []
        if self.bucket is None:
            for config in self.folder.glob("*/config.yaml"):
                checkpoints, name = RunFolder(config.parent).checkpoints, config.parent.name
                times.append((False, config.stat().st_mtime, name))
                with suppress(RunError):  # A damaged checkpoint does not count.
                    if (step := checkpoints.newest()) is not None:
                        times.append((True, read_description(checkpoints.path(step))["time"], name))
        else:
            for name in self.bucket.folders():
                times.append((False, 0.0, name))
                with suppress(IndexError, KeyError, TypeError, ValueError):
                    newest = _description(self.steps(name)[-1])
                    content = self.bucket.read(name, newest) or b""
                    times.append((True, json.loads(content)["time"], name))
        if not times:
            raise RunError(f"there is no run with a checkpoint in {self.url or self.folder}")
        return max(times)[2]

    def steps(self, name: str) -> list[int]:
        """Lists the steps of a run's complete checkpoints in the bucket, in order."""
        return [] if self.bucket is None else _steps(self.bucket.files(name))

    @_using_disk()
    def pull(self, name: str) -> Path:
        """Updates a run's local folder from the bucket, if there is a bucket.

        The local folder stays as it is if no other process has taken the run over, and the bucket
        has no later checkpoint. Otherwise the bucket's files replace the local folder. If the old
        local folder has later checkpoints than the bucket, the old folder is kept under another
        name.

        Returns:
            The local folder.

        Raises:
            RunError: there is no such run.
        """
        local, bucket = RunFolder(self.folder / name), self.bucket
        if bucket is None:
            return local.path
        there, ours = bucket.files(name), _noted_writer(local)
        newest = local.checkpoints.newest() or 0
        if not there and not newest:
            raise RunError(f"there is no run {self.place(name)}")
        is_writer = ours is not None and ours == bucket.read(name, _WRITER)
        if not there or (is_writer and newest >= max(_steps(there), default=0)):
            return local.path
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.folder, prefix=".pull") as scratch:
            fresh, old = RunFolder(Path(scratch, "fresh")), Path(scratch, "old")
            try:
                _fetch(bucket, local, there, fresh.path)
            except MissingError:  # The run is being trained, and has just deleted a file.
                if bucket.files(name).keys() == there.keys():
                    raise
                return self.pull(name)
            if ours is not None and newest > (fresh.checkpoints.newest() or 0):
                old = local.path.with_name(f"{name}.{datetime.now():%Y-%m-%dT%H%M%S}")
                warn(
                    f"{self.place(name)} was continued without {local.path}, which goes further "
                    f"and is kept as {old}"
                )
            if local.path.exists():
                local.path.rename(old)
            fresh.path.rename(local.path)
            if old.parent == Path(scratch) and (old / "wandb").exists():
                (old / "wandb").rename(local.path / "wandb")
        return local.path

    def claim(self, folders: Sequence[RunFolder]) -> None:
        """Reserves the names of new runs in the bucket; see :meth:`take_over`.

        Raises:
            RunError: a name is taken, or the bucket cannot be written to; the local folders have
                been deleted.
        """
        if (bucket := self.bucket) is None:
            return
        try:
            for folder in folders:
                if bucket.read(folder.path.name, _WRITER) is not None:
                    raise RunError(f"there is a run {self.place(folder.path.name)} already")
                self.take_over(folder)
        except RunError:
            for folder in folders:
                name, ours = folder.path.name, _noted_writer(folder)
                shutil.rmtree(folder.path)
                with suppress(RunError):
                    # If another process was faster, the files belong to that process.
                    if bucket.read(name, _WRITER) in (None, ours):
                        bucket.delete(name, bucket.files(name))
            raise

    def take_over(self, folder: RunFolder) -> None:
        """Makes this process the only writer of a run in the bucket, if there is a bucket.

        The method then pushes the local folder. This push deletes from the bucket everything later
        than the checkpoint to resume from.
        """
        if self.bucket is None:
            return
        name, me = folder.path.name, f"{this_process()}, {secrets.token_hex(8)}".encode()
        write_whole(folder.path / f".{_WRITER}", me)
        # The settings go first, because a run with only its settings can begin anew.
        _put(self.bucket, folder, [folder.config.name])
        self.bucket.write(name, _WRITER, me)
        self.push(folder)

    def catch_up(self, folder: RunFolder) -> None:
        """Completes the push of an earlier process, unless another has taken the run over since.

        Raises:
            RunError: a process is training the run.
        """
        ours = _noted_writer(folder)
        if self.bucket and ours and ours == self.bucket.read(folder.path.name, _WRITER):
            with hold(folder.path):
                self.push(folder)

    @_using_disk()
    def push(self, folder: RunFolder) -> None:
        """Copies a run's local folder to the bucket, if there is a bucket.

        Raises:
            RunError: another process has taken the run over; the bucket stays as it is.
        """
        if (bucket := self.bucket) is None:
            return
        name = folder.path.name
        if (writer := bucket.read(name, _WRITER)) != _noted_writer(folder):
            other = writer.decode() if writer else "a process that has deleted it"
            raise RunError(
                f"{self.place(name)} was taken over by {other}; nothing of it was overwritten"
            )
        here, there, steps = _local_files(folder), bucket.files(name), folder.checkpoints.steps()
        have = [step for step in steps if _is_there(bucket, folder, step, there)]
        # First, checkpoints later than the resumed one stop being complete. Older ones that the
        # local folder has pruned stay complete until the newer ones are in the bucket.
        newest = max(steps, default=-1)
        other = [x for x in _steps(there) if x > newest or (x in steps and x not in have)]
        bucket.delete(name, map(_description, reversed(other)))
        _put(bucket, folder, [x for x in here if _is_log(x) or here[x] != there.get(x)])
        for step in (step for step in steps if step not in have):
            root = folder.checkpoints.path(step)
            files = [x.relative_to(folder.path).as_posix() for x in root.rglob("*") if x.is_file()]
            _put(bucket, folder, [path for path in files if path != _description(step)])
            bucket.write(name, _description(step), (root / DESCRIPTION).read_bytes())
        # Also deletes parts of checkpoints that a killed push left.
        gone = [x for x in there if _is_log(x) and x not in here]
        gone += [x for x in there if (step := _step(x)) is not None and step not in steps]
        bucket.delete(name, sorted(gone, key=lambda path: not path.endswith(DESCRIPTION)))


def _put(bucket: Bucket, folder: RunFolder, paths: Sequence[str]) -> None:
    bucket.put(folder.path.name, paths, [str(folder.path / path) for path in paths])


def _fetch(bucket: Bucket, local: RunFolder, there: Mapping[str, int], to: Path) -> None:
    """Downloads logs and complete checkpoints; checkpoints in ``local`` are copied instead."""
    to.mkdir()
    wanted = [path for path in there if _step(path) is None and path != _WRITER]
    for step in _steps(there):
        if _is_there(bucket, local, step, there):
            shutil.copytree(local.checkpoints.path(step), to / "checkpoints" / str(step))
        else:
            wanted += [path for path in there if _step(path) == step]
    for path in wanted:
        (to / path).parent.mkdir(parents=True, exist_ok=True)
    bucket.get(local.path.name, wanted, [str(to / path) for path in wanted])


def _is_there(bucket: Bucket, folder: RunFolder, step: int, there: Mapping[str, int]) -> bool:
    """Whether bucket and local folder have the same description of a step's checkpoint."""
    path, local = _description(step), folder.checkpoints.path(step) / DESCRIPTION
    in_both = path in there and local.exists()
    return in_both and local.read_bytes() == bucket.read(folder.path.name, path)


def _step(path: str) -> int | None:
    found = _CHECKPOINT.match(path)
    return None if found is None else int(found[1])


def _steps(files: Mapping[str, int]) -> list[int]:
    """Lists the steps of complete checkpoints, in order."""
    found = {step for path in files if (step := _step(path)) is not None}
    return sorted(step for step in found if _description(step) in files)


def _description(step: int) -> str:
    return f"checkpoints/{step}/{DESCRIPTION}"


def _is_log(path: str) -> bool:
    """Whether a file belongs to the logs; resuming cuts the logs back to the checkpoint."""
    return path.startswith(_LOGS)


def _local_files(folder: RunFolder) -> dict[str, int]:
    """Returns the sizes of the files to copy, other than checkpoints, by path."""
    files = (x for x in sorted(folder.path.rglob("*")) if x.is_file() and not x.is_symlink())
    sizes = {x.relative_to(folder.path).as_posix(): x.stat().st_size for x in files}
    return {path: sizes[path] for path in sizes if not _NOT_COPIED.match(path)}


def _noted_writer(folder: RunFolder) -> bytes | None:
    """Reads the name of the process that last trained the run in this local folder."""
    path = folder.path / f".{_WRITER}"
    return path.read_bytes() if path.exists() else None
