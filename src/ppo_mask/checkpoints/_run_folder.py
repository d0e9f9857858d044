"""The folder of a run: its name, what lies where in it, and how a resumed run finds it."""

import dataclasses
import os
import shutil
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from ppo_mask.checkpoints._store import CheckpointStore
from ppo_mask.errors import RunError

LATEST = "latest"


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """What lies where in a run's folder."""

    path: Path

    @property
    def config(self) -> Path:
        """The settings, everything filled in."""
        return self.path / "config.yaml"

    @property
    def metrics(self) -> Path:
        """The log as JSON lines."""
        return self.path / "metrics.jsonl"

    @property
    def tensorboard(self) -> Path:
        """The folder of the event files."""
        return self.path / "tensorboard"

    @property
    def profile(self) -> Path:
        """The folder of traces."""
        return self.path / "profile"

    @property
    def checkpoints(self) -> CheckpointStore:
        """The checkpoints."""
        return CheckpointStore(self.path / "checkpoints")

    def write_config(self, content: dict[str, Any]) -> None:
        """Writes or replaces the settings; a kill leaves the old or the new ones."""
        new = self.path / ".config.yaml.new"
        new.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        os.replace(new, self.config)


def cache_folder() -> Path:
    """Where this user's programs keep what can be made or fetched again."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "ppo_mask"


def create_run_folder(
    parent: Path, name: str | None, suffix: str | None, taken: Mapping[str, str] | None = None
) -> RunFolder:
    """Makes the folder of a new run; without a name, one of today's date and a running number.

    Args:
        parent: holds the folder.
        name: of the run.
        suffix: put after the name.
        taken: names of runs elsewhere, and where they are.

    Raises:
        RunError: there is a run of this name, or the folder cannot be made.
    """
    ending = f"-{suffix}" if suffix else ""
    path = parent / f"{name}{ending}" if name else _next_free(parent, ending, taken or {})
    check_new_run(path, taken)
    try:
        path.mkdir(parents=True)
    except OSError as error:
        raise RunError(f"cannot make the run folder {path}: {error.strerror}") from error
    return RunFolder(path)


def copy_run(run: RunFolder, step: int, path: Path) -> RunFolder:
    """Copies a run as far as one of its checkpoints; a kill leaves the whole copy or none.

    Left out are its traces and its run on W&B. What its logs have of later steps is dropped when
    the copy is resumed.

    Args:
        run: the run, which stays as it is.
        step: of the last checkpoint that is copied.
        path: of the copy's folder; there must be none yet.

    Returns:
        The copy.

    Raises:
        RunError: it cannot be written.
    """
    # One more folder inside, so that a search for runs does not find what is not complete.
    scratch = path.with_name(f".{path.name}.copying")
    copy = RunFolder(scratch / path.name)
    try:
        shutil.rmtree(scratch, ignore_errors=True)
        copy.checkpoints.directory.mkdir(parents=True)
        for file in filter(Path.exists, (run.config, run.metrics)):
            shutil.copy2(file, copy.path)
        if run.tensorboard.is_dir():
            shutil.copytree(run.tensorboard, copy.tensorboard)
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
    """Makes sure that a name makes one folder.

    Raises:
        RunError: it does not; the message calls it ``flag``.
    """
    if not name.strip() or name.startswith(".") or set(name) & set('/\\:*?"<>|\n'):
        raise RunError(f"{flag} must be a plain folder name, got {name!r}")


def check_new_run(path: Path, taken: Mapping[str, str] | None = None) -> None:
    """Makes sure that a run's folder does not exist yet, and is not ``taken`` elsewhere.

    Raises:
        RunError: it does.
    """
    place = (taken or {}).get(path.name, path if path.exists() else None)
    if place is not None:
        raise RunError(
            f"there is a run {place} already; resume it by --resume {place}, or choose another "
            "--run-name"
        )


def _next_free(parent: Path, ending: str, taken: Mapping[str, str]) -> Path:
    today = date.today().isoformat()
    names = [*taken, *(path.name for path in parent.glob(f"{today}-*"))]
    numbers = [
        int(name[11:14]) for name in names if name.startswith(today) and name[11:14].isdecimal()
    ]
    return parent / f"{today}-{max(numbers, default=0) + 1:03d}{ending}"


def find_local_run(resume: str, parent: Path) -> tuple[RunFolder, int]:
    """The run and the step of the checkpoint that ``--resume`` means.

    Args:
        resume: a run's folder, one checkpoint in it, or "latest".
        parent: where "latest" looks: the run whose newest checkpoint is the newest of all.

    Raises:
        RunError: there is none.
    """
    if resume == LATEST:
        return _find_latest(parent)
    path = Path(resume)
    if RunFolder(path).config.is_file():
        folder = RunFolder(path)
        steps = folder.checkpoints.steps()
        if not steps:
            raise RunError(f"run {path} has no complete checkpoint to resume from")
        return folder, steps[-1]
    folder = RunFolder(path.absolute().parent.parent)
    if path.is_dir() and path.name.isdecimal() and folder.config.is_file():
        return folder, int(path.name)
    if not path.exists():
        raise RunError(f"there is nothing to resume at {path}")
    raise RunError(f"{path} is neither a run folder (with a config.yaml) nor a checkpoint of one")


def _find_latest(parent: Path) -> tuple[RunFolder, int]:
    newest: list[tuple[float, RunFolder, int]] = []
    for config in parent.glob("*/config.yaml"):
        folder = RunFolder(config.parent)
        if steps := folder.checkpoints.steps():
            modified = folder.checkpoints.path(steps[-1]).stat().st_mtime
            newest.append((modified, folder, steps[-1]))
    if not newest:
        raise RunError(f"there is no run with a checkpoint in {parent}")
    _, folder, step = max(newest, key=lambda found: found[0])
    return folder, step
