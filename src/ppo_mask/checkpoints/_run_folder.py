"""The folder of a run: its name and its files."""

import dataclasses
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from ppo_mask.checkpoints._files import write_whole
from ppo_mask.checkpoints._lock import LOCK
from ppo_mask.checkpoints._store import CheckpointStore
from ppo_mask.errors import RunError

LATEST = "latest"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """The paths in a run's folder.

    Attributes:
        path: the folder's path.
    """

    path: Path

    @property
    def config(self) -> Path:
        """The settings, with all defaults filled in."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """The log as JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The folder of TensorBoard's event files."""
        return self.path / "tensorboard"

    @property
    def profile(self) -> Path:
        """The folder of the profiler's traces."""
        return self.path / "profile"

    @property
    def checkpoints(self) -> CheckpointStore:
        """The run's checkpoints."""
        return CheckpointStore(self.path / "checkpoints")

    @property
    def is_empty(self) -> bool:
        """Whether the run ended before its first checkpoint, or before it wrote anything."""
        if self.config.is_file() or (self.path / LOCK).is_file():
            found = self.checkpoints.directory.glob("*")
            return not any(path.name.isdecimal() for path in found)
        return self.path.is_dir() and not any(self.path.iterdir())

    def write_config(self, content: dict[str, Any]) -> None:
        """Writes or replaces the settings.

        Raises:
            RunError: the file cannot be written.
        """
        write_whole(self.config, yaml.safe_dump(content, sort_keys=False).encode())


def cache_folder() -> Path:
    """Returns the folder of this user's cache.

    Raises:
        RunError: the user has no home folder.
    """
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ppo_mask"
    except RuntimeError as error:  # HOME is not set, and the system does not know the user.
        raise RunError(
            "there is no home folder for the cache; set HOME or XDG_CACHE_HOME"
        ) from error


def expand_user(text: str) -> str:
    """Replaces ``~`` or ``~user`` at the beginning of a path with that user's home folder.

    Raises:
        RunError: the user or the home folder is unknown.
    """
    path = os.path.expanduser(text)
    if path.startswith("~"):
        user = text.partition("/")[0]
        raise RunError(
            f"there is no home folder {user} for {text}; write ./{text} for a file of that name"
        )
    return path


def create_run_folders(
    parent: Path, taken: Mapping[str, str], name: str | None, suffixes: Sequence[str | None]
) -> list[RunFolder]:
    """Makes the folders of new runs; generates a name from the date if none is given.

    A run with a given name may reuse the folder of a run that ended before its first checkpoint.

    Args:
        parent: the folder in which to make the run folders.
        taken: the places of existing runs, by name.
        name: the name of the runs; None for a name from the date.
        suffixes: for each run, a suffix of the name, or None.

    Raises:
        RunError: a run of the same name exists, or a folder cannot be made.
    """
    chosen = name or _next_free(taken)
    names = [f"{chosen}-{suffix}" if suffix else chosen for suffix in suffixes]
    for each in names:
        check_new_run(each, taken)
    made: list[RunFolder] = []
    for path in (parent / each for each in names):
        try:
            path.mkdir(parents=True)
        except FileExistsError:
            if name is not None and RunFolder(path).is_empty:
                made.append(RunFolder(path))
                continue
            # Another process has just made this folder, so the name is taken. A generated name
            # gets the next number.
            for folder in made:
                with suppress(OSError):
                    folder.path.rmdir()
            now = {**taken, path.name: str(path)}
            return create_run_folders(parent, now, name, suffixes)
        except OSError as error:
            raise RunError(f"cannot make the run folder {path}: {error.strerror}") from error
        made.append(RunFolder(path))
    return made


def copy_run(run: RunFolder, step: int, path: Path) -> RunFolder:
    """Copies a run up to one of its checkpoints; a kill leaves a whole copy or no copy.

    The copy leaves out the profiler's traces, the W&B run and TensorBoard's files. Resuming the
    copy writes TensorBoard's files anew, and drops log lines of later steps.

    Args:
        run: the run, which stays as it is.
        step: the step of the last checkpoint to copy.
        path: the copy's folder, which must not exist yet.

    Returns:
        The copy.

    Raises:
        RunError: the copy cannot be written.
    """
    # One level deeper, so that a search for runs does not find an incomplete copy.
    scratch = path.with_name(f".{path.name}.copying")
    copy = RunFolder(scratch / path.name)
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        copy.checkpoints.directory.mkdir(parents=True)
        for file in filter(Path.exists, (run.config, run.metrics)):
            shutil.copy2(file, copy.path)
        for each in run.checkpoints.steps():
            if each <= step:
                shutil.copytree(run.checkpoints.path(each), copy.checkpoints.path(each))
        copy.path.rename(path)
    except OSError as error:
        reason = error.strerror or error
        raise RunError(f"cannot copy the run {run.path} to {path}: {reason}") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return RunFolder(path)


def check_run_name(name: str, flag: str) -> None:
    """Checks that a run's name is a plain folder name, with no other meaning for ``--resume``.

    Raises:
        RunError: the name is not allowed; the message names ``flag``.
    """
    if name == LATEST or name.startswith(("~", "-")):
        raise RunError(f"{flag} cannot be {name!r}, which means something else to --resume")
    if not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\n'):
        raise RunError(f"{flag} must be a plain folder name, got {name!r}")


def check_new_run(name: str, taken: Mapping[str, str]) -> None:
    """Checks that no run has this name, except a local run without a checkpoint.

    Raises:
        RunError: a run has this name.
    """
    place = taken.get(name)
    if place and not RunFolder(Path(place)).is_empty:
        raise RunError(
            f"there is a run {place} already; resume it by --resume {place}, or choose another "
            "--run-name"
        )


def _next_free(taken: Mapping[str, str]) -> str:
    today = date.today().isoformat()
    found = (re.match(rf"{today}-([0-9]+)", name) for name in taken)
    return f"{today}-{max((int(x[1]) for x in found if x), default=0) + 1:03d}"
