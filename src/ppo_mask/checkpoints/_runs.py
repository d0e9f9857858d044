"""Runs side by side in a folder or a bucket, and how a user names one of them.

Of several processes, only process 0 writes. Each other process reads a bucket into a folder of its
own, which is deleted when the process ends.
"""

import atexit
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import final

from ppo_mask.checkpoints._files import using_disk
from ppo_mask.checkpoints._mirror import Mirror
from ppo_mask.checkpoints._objects import Bucket, open_bucket
from ppo_mask.checkpoints._run_dir import RunDir
from ppo_mask.devices.processes import is_process_0
from ppo_mask.errors import RunError

LATEST = "latest"


@final
@dataclass(frozen=True)
class Runs:
    """A folder of runs, and perhaps its copy in a bucket.

    Attributes:
        folder: the local folder, with a folder for each run.
        bucket: the bucket that holds the copy; None if there is no bucket.
    """

    folder: Path
    bucket: Bucket | None = None

    @property
    def place(self) -> str:
        """The URL of the bucket or, without one, the folder's path without links."""
        return str(self.folder.resolve()) if self.bucket is None else self.bucket.url

    def run(self, name: str) -> RunDir:
        """Returns the run of a name, whether it exists or not."""
        mirror = None if self.bucket is None else Mirror(self.bucket, name)
        return RunDir(self.folder / name, mirror)

    def names(self) -> list[str]:
        """Lists the runs in the folder and in the bucket."""
        here = [path.name for path in self.folder.glob("[!.]*")]
        return here if self.bucket is None else [*here, *self.bucket.folders()]

    def newest(self) -> RunDir:
        """Returns the run with the latest save or, if no run has a checkpoint, the latest start.

        Raises:
            RunError: there is no run.
        """
        ages: dict[RunDir, tuple[bool, float]] = {}
        if self.bucket is None:
            for config in self.folder.glob("*/config.yaml"):
                run = self.run(config.parent.name)
                ages[run] = False, config.stat().st_mtime
                with suppress(RunError):  # Without a checkpoint, or with a damaged one.
                    ages[run] = True, run.checkpoint().about["time"]
        else:
            for name in self.bucket.folders():
                time = Mirror(self.bucket, name).saved_at()
                ages[self.run(name)] = time is not None, time or 0.0
        if not ages:
            raise RunError(f"there is no run with a checkpoint in {self.place}")
        return max(ages, key=lambda run: (ages[run], run.path)).pull()

    def check_new(self, name: str) -> None:
        """Checks that no run has this name, except a local run without a checkpoint.

        Raises:
            RunError: a run has this name.
        """
        run = self.run(name)
        if name in self.names() and not (run.mirror is None and run.is_empty):
            raise RunError(
                f"there is a run {run.place} already; resume it by --resume {run.place}, or choose "
                "another --run-name"
            )

    def create(
        self, name: str | None, suffix: str | None, ends: Sequence[str | None], again: bool = False
    ) -> list[RunDir]:
        """Makes the folders of new runs; generates a name from the date if none is given.

        A run with a given name may reuse the folder of a run that ended before its first
        checkpoint.

        Args:
            name: the name of the runs; None for a name from the date.
            suffix: what all names have after a dash, or None.
            ends: what the name of each run has after another dash, or None.
            again: whether the run of this name, which has no checkpoint, begins anew.

        Raises:
            RunError: a run of the same name exists, or a folder cannot be made.
        """
        chosen = name or _next_free(self.names())
        names = ["-".join(filter(None, (chosen, suffix, end))) for end in ends]
        for each in () if again else names:
            self.check_new(each)
        runs = [*map(self.run, names)]
        for run in runs:
            with using_disk(run.path):
                try:
                    run.path.mkdir(parents=True)
                except FileExistsError:
                    # Another process may have just made this folder, so that the name is taken. A
                    # generated name gets the next number.
                    if name is None or not run.is_empty:
                        return self.create(name, suffix, ends)
        return runs

    def claim(self, runs: Sequence[RunDir]) -> None:
        """Reserves the names of new runs in the bucket; see :meth:`Mirror.take_over`.

        Raises:
            RunError: a name is taken, or the bucket cannot be written to; the local folders have
                been deleted.
        """
        mirrored = [(run.mirror, run.path) for run in runs if run.mirror is not None]
        try:
            for mirror, path in mirrored:
                if mirror.writer() is not None:
                    raise RunError(f"there is a run {mirror.url} already")
                mirror.take_over(path)
        except RunError:
            for mirror, path in mirrored:
                mirror.give_up(path)
                shutil.rmtree(path)
            raise


def is_url(place: str) -> bool:
    """Whether a place is a URL, not a local path."""
    return "://" in place


def open_runs(place: str) -> Runs:
    """Opens the runs at a path, or at a URL such as ``gs://bucket/runs``.

    Raises:
        RunError: ``place`` is a URL of another form, the package for its scheme is missing, or the
            system refuses the path.
    """
    if not is_url(place):
        return Runs(known_path(place).absolute())
    bucket, parts = open_bucket(place)
    folder = (cache_folder() / "runs" if is_process_0() else _scratch()).joinpath(*parts)
    return Runs(folder, bucket)


def find_run(place: str, parent: str) -> tuple[RunDir, int | None]:
    """Finds a run that a user names.

    Args:
        place: the path or the URL of a run or of one of its checkpoints; the name of a run in
            ``parent``; or "latest", the run in ``parent`` that was saved last.
        parent: the folder or URL to search for names and for "latest".

    Returns:
        The run, and the step if ``place`` is that of a checkpoint.

    Raises:
        RunError: there is no such run or checkpoint; or see :func:`known_path`.
    """
    if place == LATEST:
        return open_runs(parent).newest(), None
    if is_url(place):
        return _pull(place)
    if _may_be_a_name(place) and place in (known := open_runs(parent)).names():
        run = known.run(place).pull()
    else:
        run = RunDir(known_path(place))
    above = RunDir(run.path.parent.parent)
    if run.config.is_file():
        return run, None
    if run.path.is_dir() and run.path.name.isdecimal() and above.config.is_file():
        return above, int(run.path.name)
    if run.path.exists():
        line = f"{run.path} is neither a run folder (with a config.yaml) nor a checkpoint of one"
        raise RunError(line)
    is_name = _may_be_a_name(place)
    known = open_runs(parent) if is_name else Runs(run.path.parent)
    seeds = [name for name in known.names() if name.startswith(f"{run.path.name}-seed")]
    hint = f"; there are {', '.join(seeds)}" if seeds else ""
    raise RunError(f"there is no run or checkpoint {place if is_name else run.path}{hint}")


def cache_folder() -> Path:
    """Returns the folder of this user's cache.

    Raises:
        RunError: the user has no home folder.
    """
    return Path(os.environ.get("XDG_CACHE_HOME") or expand_user("~/.cache"), "ppo_mask")


def expand_user(text: str) -> str:
    """Replaces ``~`` or ``~user`` at the beginning of a path with that user's home folder.

    Raises:
        RunError: the user or the home folder is unknown.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        user = text.partition("/")[0]
        raise RunError(
            f"there is no home folder {user} for {text}; set HOME, or write ./{text} for a file of "
            "that name"
        )
    return path


def check_run_name(name: str, flag: str) -> None:
    """Checks that a run's name is a plain folder name, with no other meaning for ``--resume``.

    Raises:
        RunError: the name is not allowed; the message names ``flag``.
    """
    if name == LATEST or name.startswith(("~", "-")):
        raise RunError(f"{flag} cannot be {name!r}, which means something else to --resume")
    if not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\n'):
        raise RunError(f"{flag} must be a plain folder name, got {name!r}")


def _next_free(taken: Sequence[str]) -> str:
    today = date.today().isoformat()
    found = (re.match(rf"{today}-([0-9]+)", name) for name in taken)
    return f"{today}-{max((int(x[1]) for x in found if x), default=0) + 1:03d}"


def _may_be_a_name(place: str) -> bool:
    """Whether the place can be a run's name; if not, the slow search in the bucket is skipped."""
    return Path(place).name == place and not os.path.exists(place)


def known_path(place: str) -> Path:
    """Returns the path after checking that the system accepts it; no file needs to exist there."""
    path = Path(expand_user(place))
    with using_disk(path), suppress(FileNotFoundError, NotADirectoryError):
        path.stat()  # Fails, for example, for a name that is too long.
    return path


@cache
def _scratch() -> Path:
    with using_disk(cache_folder()):
        folder = mkdtemp(prefix="ppo_mask-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _pull(url: str) -> tuple[RunDir, int | None]:
    """Downloads the run at a URL; also returns the step if the URL is that of a checkpoint."""
    parts = re.fullmatch(r"([^:]+:///?[^/]+.*?)/([^/]+)(?:/checkpoints/(\d+))?/*", url)
    if parts is None:
        raise RunError(f"{url} is not the URL of a run, such as gs://bucket/runs/NAME")
    run = open_runs(parts[1]).run(parts[2]).pull()
    if parts[3] is None:
        return run, None
    steps = run.steps()
    if int(parts[3]) not in steps:
        has = ", ".join(map(str, steps)) or "none"
        raise RunError(f"there is no checkpoint {url}; the run has: {has}")
    return run, int(parts[3])
