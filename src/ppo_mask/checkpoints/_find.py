"""Finds the folder of a run that a user names."""

import os
import re
from pathlib import Path

from ppo_mask.checkpoints._run_folder import LATEST, RunFolder, expand_user
from ppo_mask.checkpoints._storage import Storage, is_url, open_storage
from ppo_mask.errors import RunError


def local_path(place: str) -> Path:
    """Returns the local path of a run or checkpoint, after a download if ``place`` is a URL.

    Raises:
        RunError: the URL cannot be reached, or has no intact run; or the system refuses the path.
    """
    return _fetch(place)[1] if is_url(place) else _known_path(place)


def find_run(place: str, parent: str, or_empty: bool = False) -> tuple[RunFolder, int, Storage]:
    """Finds the run that a value of ``--resume`` names.

    Args:
        place: the path or the URL of a run or of one of its checkpoints; the name of a run in
            ``parent``; or "latest", the run in ``parent`` that was saved last.
        parent: the folder or URL to search for names and for "latest".
        or_empty: whether to accept a run without a checkpoint; the step is then 0.

    Returns:
        The run's folder, the step of the checkpoint to resume from, and the storage of the run.

    Raises:
        RunError: there is no such run or checkpoint; or see :func:`local_path`.
    """
    if place == LATEST:
        storage = _runs_in(parent)
        path = storage.pull(storage.newest())
    elif is_url(place):
        storage, path = _fetch(place)
    elif _may_be_a_name(place) and place in (known := _runs_in(parent)).runs():
        storage, path = known, known.pull(place)
    else:
        path = _known_path(place)
        storage = Storage(path.absolute().parent)
    folder = RunFolder(path.absolute())
    if folder.config.is_file():
        newest = folder.checkpoints.newest()
        if newest is None and not (or_empty and folder.is_empty):
            raise RunError(f"run {path} has no complete checkpoint to resume from")
        return folder, newest or 0, storage
    folder = RunFolder(path.absolute().parent.parent)
    if path.is_dir() and path.name.isdecimal() and folder.config.is_file():
        return folder, int(path.name), storage
    if not path.exists():
        known = _runs_in(parent) if _may_be_a_name(place) else storage
        seeds = [name for name in known.runs() if name.startswith(f"{path.name}-seed")]
        hint = f"; there are {', '.join(seeds)}" if seeds else ""
        raise RunError(f"there is no run or checkpoint {path}{hint}")
    raise RunError(f"{path} is neither a run folder (with a config.yaml) nor a checkpoint of one")


def _may_be_a_name(place: str) -> bool:
    """Whether the place can be a run's name; if not, the slow search in the bucket is skipped."""
    return Path(place).name == place and not os.path.exists(place)


def _runs_in(parent: str) -> Storage:
    return open_storage(parent if is_url(parent) else str(_known_path(parent)))


def _known_path(place: str) -> Path:
    """Returns the path after checking that the system accepts it; no file needs to exist there."""
    path = Path(expand_user(place))
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        pass
    except OSError as error:  # For example, a name that is too long.
        raise RunError(f"cannot look at {path}: {error.strerror}") from error
    return path


def _fetch(url: str) -> tuple[Storage, Path]:
    parts = re.fullmatch(r"([^:]+:///?[^/]+.*?)/([^/]+)(?:/checkpoints/(\d+))?/*", url)
    if parts is None:
        raise RunError(f"{url} is not the URL of a run, such as gs://bucket/runs/NAME")
    storage = open_storage(parts[1])
    folder = RunFolder(storage.pull(parts[2]))
    if parts[3] is None:
        return storage, folder.path
    steps = folder.checkpoints.steps()
    if int(parts[3]) not in steps:
        has = ", ".join(map(str, steps)) or "none"
        raise RunError(f"there is no checkpoint {url}; the run has: {has}")
    return storage, folder.checkpoints.path(int(parts[3]))
