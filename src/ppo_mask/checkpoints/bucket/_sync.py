"""Runs in a bucket: each is a mirror of a local folder, in which the run is trained as ever.

An object store can neither rename nor append. What is complete there is said by one small object,
the run's ``manifest.json``: it names the files of the run, a checksum of each, and the checkpoints
that are whole. It is written after what it names, and before what it no longer names is deleted.
So whatever is interrupted, the manifest that is there can be relied on.

The local folder keeps, in ``.bucket.json``, which manifests were its own. By that it is known
whether another process has written to the run since, and nothing is overwritten then.
"""

import re
import secrets
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from ppo_mask.checkpoints._run_folder import LATEST, RunFolder, find_local_run
from ppo_mask.checkpoints.bucket._bucket import Bucket, is_url, open_bucket
from ppo_mask.checkpoints.bucket._manifest import Manifest, Marker, files_in, is_log, of_step
from ppo_mask.errors import RunError, warn


def local_path(path: str, parent: str = "") -> tuple[str, Bucket | None]:
    """The local path of a run or checkpoint; one in a bucket is fetched first.

    Args:
        path: of a run or of one of its checkpoints, or its URL; or "latest".
        parent: where "latest" is looked for.

    Returns:
        The local path, and the bucket if there is one. What is local already comes as it is.

    Raises:
        RunError: there is no such run, it is damaged, or the bucket cannot be reached.
    """
    if path == LATEST and is_url(parent):
        bucket = open_bucket(parent)
        return str(pull(bucket, bucket.newest())), bucket
    if not is_url(path):
        return path, None
    parts = re.fullmatch(r"([^:]+:///?[^/]+.*?)/([^/]+)(?:/checkpoints/(\d+))?/*", path)
    if parts is None:
        raise RunError(f"{path} is not the URL of a run, such as gs://bucket/runs/NAME")
    bucket = open_bucket(parts[1])
    folder = RunFolder(pull(bucket, parts[2]))
    if parts[3] is None:
        return str(folder.path), bucket
    steps = folder.checkpoints.steps()
    if int(parts[3]) not in steps:
        has = ", ".join(map(str, steps)) or "none"
        raise RunError(f"there is no checkpoint {path}; the run's are: {has}")
    return str(folder.checkpoints.path(int(parts[3]))), bucket


def find_run(path: str, parent: str) -> tuple[RunFolder, int, Bucket | None]:
    """:func:`find_local_run` of what may be in a bucket, and the bucket.

    Raises:
        RunError: as that, and as :func:`local_path`.
    """
    local, bucket = local_path(path, parent)
    return *find_local_run(local, Path(parent)), bucket


def pull(bucket: Bucket, name: str) -> Path:
    """Makes a run's local folder what the bucket has of it.

    The local folder is left as it is where it is ahead: nobody else has written to the run since
    the two were last in step, and the bucket's newest checkpoint is no newer. Where somebody has,
    the bucket counts; a local folder with something in it that never was in the bucket is then
    kept under another name, with a warning.

    Returns:
        The local folder.

    Raises:
        RunError: there is no such run, it is damaged, or the bucket cannot be reached.
    """
    local, url = bucket.local / name, f"{bucket.url}/{name}"
    there, here, marker = bucket.manifest(name), Manifest.of(local), Marker.read(local)
    newest = max(here.steps, default=-1)
    if there is None:
        if newest < 0:
            raise RunError(f"there is no run {url}")
        return local
    if there.id in marker.ids and newest >= max(there.steps, default=-1):
        return local
    known = {*there.files.items(), *marker.files.items()}
    alone = [x for x in here.files.items() if x not in known and not is_log(x[0])]
    bucket.local.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=bucket.local, prefix=".pull") as scratch:
        fresh, old = Path(scratch, "fresh"), Path(scratch, "old")
        try:
            _fetch(bucket, name, there, here, fresh)
        except FileNotFoundError as error:
            if bucket.manifest(name) == there:
                raise RunError(f"{url} is damaged: {error} is not there") from error
            return pull(bucket, name)  # The run is being trained, and has deleted it since.
        Marker([there.id], there.files).write(fresh)
        if alone:
            old = local.with_name(f"{name}.{datetime.now():%Y-%m-%dT%H%M%S}")
            warn(f"{url} has gone on without {local}, whose own part is kept as {old}")
        if local.exists():
            local.rename(old)
        fresh.rename(local)
        if not alone and (old / "wandb").exists():
            (old / "wandb").rename(local / "wandb")
    return local


def push(bucket: Bucket, folder: RunFolder) -> None:
    """Makes the bucket what a run's local folder is.

    Raises:
        RunError: the bucket cannot be reached, or another process has written to the run there.
    """
    name, here = folder.path.name, Manifest.of(folder.path)
    there = _own_manifest(bucket, folder)
    # What is about to be written over, or came after the point that the run has gone on from, must
    # not count as complete meanwhile. What is no longer kept here counts until all else is there.
    newest = max(here.steps, default=-1)
    other = {x for x in here.steps if of_step(here.files, x) != of_step(there.files, x)}
    there = _forget(bucket, folder, there, [x for x in there.steps if x > newest or x in other])
    if here.files == there.files:
        return
    changed = [path for path in here.files if here.files[path] != there.files.get(path)]
    bucket.put(name, (path for path in changed if not is_log(path)), folder.path)
    bucket.put(name, (path for path in changed if is_log(path)), folder.path)
    _write(bucket, folder, here)
    for path in bucket.files(name):
        # A push that was killed may have left files that no manifest names. Others are not ours.
        ours = path in there.files or path.startswith("checkpoints/") or is_log(path)
        if ours and path not in here.files:
            bucket.delete(name, path)


def forget_after(bucket: Bucket, folder: RunFolder, step: int) -> None:
    """Says in the bucket that a run has no checkpoints after this one any more.

    Raises:
        RunError: as :func:`push`.
    """
    there = _own_manifest(bucket, folder)
    _forget(bucket, folder, there, [later for later in there.steps if later > step])


def claim(bucket: Bucket, folders: Sequence[RunFolder]) -> None:
    """Begins new runs in the bucket.

    Raises:
        RunError: it cannot be written to; the folders are gone again.
    """
    try:
        for folder in folders:
            push(bucket, folder)
    except RunError:
        for folder in folders:
            shutil.rmtree(folder.path)
            with suppress(RunError):
                for path in bucket.files(folder.path.name):
                    bucket.delete(folder.path.name, path)
        raise


def _own_manifest(bucket: Bucket, folder: RunFolder) -> Manifest:
    name = folder.path.name
    there = bucket.manifest(name) or Manifest()
    if there.id and there.id not in Marker.read(folder.path).ids:
        raise RunError(
            f"another process has written to {bucket.url}/{name} since; nothing of it was "
            "overwritten"
        )
    return there


def _forget(bucket: Bucket, folder: RunFolder, there: Manifest, steps: Iterable[int]) -> Manifest:
    left = there.without(steps)
    if left.steps != there.steps:
        _write(bucket, folder, left)
    return left


def _write(bucket: Bucket, folder: RunFolder, manifest: Manifest) -> None:
    # Its number is noted first: whether it was written may remain unknown.
    marker, new = Marker.read(folder.path), manifest.stamped(secrets.token_hex(8))
    Marker([*marker.ids, new.id], marker.files).write(folder.path)
    bucket.write_manifest(folder.path.name, new)
    Marker([new.id], new.files).write(folder.path)


def _fetch(bucket: Bucket, name: str, there: Manifest, here: Manifest, to: Path) -> None:
    to.mkdir()
    wanted = [path for path, x in there.files.items() if here.files.get(path) != x]
    for path in there.files.keys() - set(wanted):
        (to / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(bucket.local / name / path, to / path)
    bucket.get(name, wanted, to)
    got = files_in(to)
    for path in wanted:
        # A log may be newer than the manifest.
        if not is_log(path) and got.get(path) != there.files[path]:
            raise RunError(f"{bucket.url}/{name} is damaged: {path} is not what was saved")
