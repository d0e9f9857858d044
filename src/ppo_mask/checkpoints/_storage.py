"""Where runs are kept: in a folder on this machine and, if it has a URL, in a bucket as well.

A run in a bucket is a mirror of its local folder, in which it is trained like any other. An object
store can neither rename nor append. What is complete there is said by one small object, the run's
``manifest.json``: it names the files of the run, a checksum of each, and the checkpoints that are
whole. It is written after what it names, and before what it no longer names is deleted. So whatever
is interrupted, the manifest that is there can be relied on.

The local folder keeps, in ``.bucket.json``, which manifests it wrote itself. So it knows whether
another process has written to the run since, and overwrites nothing then.

Of several processes the first one alone has the local folder and reaches the bucket. The others
need neither: it tells them what to resume, and sends them the checkpoint (see ``_send``); whatever
they hold of the state it gathers before it saves. So there is one writer, as with one process.

Object stores are reached through fsspec, which Orbax brings; the packages for its kinds are extras.
"""

import dataclasses
import secrets
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final

from ppo_mask.checkpoints._lock import hold
from ppo_mask.checkpoints._manifest import MANIFEST, Manifest, is_log, read_marker, write_marker
from ppo_mask.checkpoints._run_folder import RunFolder, cache_folder
from ppo_mask.errors import RunError, first_line, warn

_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}


def is_url(place: str) -> bool:
    """Whether this is no local path."""
    return "://" in place


def open_storage(place: str) -> "Storage":
    """The storage of runs at a path, or at a URL such as ``gs://bucket/runs``.

    Raises:
        RunError: it is no such URL, or the package for its kind is not installed.
    """
    if not is_url(place):
        return Storage(Path(place))
    url = place.rstrip("/")
    scheme, _, path = url.partition("://")
    parts = [part for part in path.split("/") if part]
    if not parts or {".", ".."} & set(parts):
        raise RunError(f"{url} is not the URL of a folder of runs, such as gs://bucket/runs")
    if "::" in url:
        # To fsspec it is: what is written would not be where it is looked for.
        raise RunError(f"{url} is a chain of URLs; give one URL without ::")
    try:
        # Imported here: most runs need no bucket.
        from fsspec import get_filesystem_class
        from fsspec.core import url_to_fs

        get_filesystem_class(scheme)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        hint = f"pip install 'ppo-mask[{extra}]'" if extra else str(error)
        raise RunError(f"{scheme}:// needs a package that is not installed: {hint}") from error
    except ValueError as error:
        raise RunError(
            f"{url}: there is no {scheme}://; gs:// and s3:// are known, and what fsspec knows"
        ) from error
    with _reaching(url):
        # Folders are something that only a local file system has.
        options = {"auto_mkdir": True} if scheme in ("file", "local") else {}
        store, root = url_to_fs(url, **options)
    folder = cache_folder().joinpath("runs", scheme, *parts)
    return Storage(folder, url, store, str(root))


@contextmanager
def _using_disk() -> Generator[None]:
    try:
        yield
    except OSError as error:
        path = error.filename or cache_folder()
        raise RunError(f"cannot use {path}: {error.strerror or error}") from error


@final
@dataclass(frozen=True)
class Storage:
    """A folder of runs, and perhaps its copy in an object store.

    All that reaches the store raises a RunError where that does not work. Without one there is
    nothing to copy.

    Attributes:
        folder: holds a folder per run, on this machine.
        url: of the copy; None if there is none.
        store: the object store, as fsspec shows it; None if there is none, or if another process
            reaches it for this one.
        root: the folder's path there.
    """

    folder: Path
    url: str | None = None
    store: Any = None
    root: str = ""

    def place(self, name: str) -> str:
        """The path or the URL of a run."""
        return str(self.folder / name) if self.url is None else f"{self.url}/{name}"

    def runs(self) -> dict[str, str]:
        """The names that are taken, here or in the store, and the place of each."""
        here = [path.name for path in self.folder.glob("[!.]*")]
        return {name: self.place(name) for name in (*here, *self._names())}

    def newest(self) -> str:
        """The run that was saved last; if none has a checkpoint yet, the one that began last.

        Raises:
            RunError: there is none.
        """
        times: list[tuple[bool, Any, str]] = []
        if self.url is None:
            for config in self.folder.glob("*/config.yaml"):
                checkpoints = RunFolder(config.parent).checkpoints
                step = checkpoints.newest()
                last = config if step is None else checkpoints.path(step)
                times.append((step is not None, last.stat().st_mtime, config.parent.name))
        for name in self._names():
            if manifest := self.manifest(name):
                times.append((bool(manifest.steps), manifest.time, name))
        if not times:
            raise RunError(f"there is no run with a checkpoint in {self.url or self.folder}")
        return max(times)[2]

    def manifest(self, name: str) -> Manifest | None:
        """What the store has of a run; None if nothing.

        Raises:
            RunError: it is no manifest.
        """
        try:
            content: bytes = self._do("cat_file", self._path(name, MANIFEST))
        except _MissingError:
            return None
        return Manifest.parse(content, f"{self.place(name)}/{MANIFEST}")

    @_using_disk()
    def pull(self, name: str) -> Path:
        """Makes a run's local folder what the bucket, if there is one, has of it.

        The local folder is left as it is where it is ahead: nobody else has written to the run
        since the two were last in step, and the bucket's newest checkpoint is no newer. Where
        somebody has, the bucket counts; a local folder with something in it that never was in the
        bucket is then kept under another name, with a warning.

        Returns:
            The local folder.

        Raises:
            RunError: there is no such run, or it is damaged.
        """
        local, url = self.folder / name, self.place(name)
        if self.url is None:
            return local
        rewound = RunFolder(local).checkpoints.rewound
        if rewound.is_dir():  # By a process that was killed; or it is at work, and has the lock.
            with suppress(RunError), hold(local):
                RunFolder(local).put_back()
        there, here, marker = self.manifest(name), Manifest.of(local), read_marker(local)
        newest = max(here.steps, default=-1)
        if there is None:
            if newest < 0:
                raise RunError(f"there is no run {url}")
            return local
        ahead = newest >= max(there.steps, default=-1) or rewound.is_dir()
        if there.id in marker.ids and ahead:
            return local
        known = {*there.files.items(), *marker.files.items()}
        alone = [x for x in here.files.items() if x not in known and not is_log(x[0])]
        self.folder.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=self.folder, prefix=".pull") as scratch:
            fresh, old = Path(scratch, "fresh"), Path(scratch, "old")
            try:
                self._fetch(name, there, here, fresh)
            except _MissingError as error:
                if self.manifest(name) == there:
                    raise RunError(f"{url} is damaged: {error.__cause__} is not there") from error
                return self.pull(name)  # The run is being trained, and has deleted it since.
            write_marker(fresh, [there.id], there.files)
            if alone:
                old = local.with_name(f"{name}.{datetime.now():%Y-%m-%dT%H%M%S}")
                warn(f"{url} was continued without {local}, whose own part is kept as {old}")
            if local.exists():
                local.rename(old)
            fresh.rename(local)
            if not alone and (old / "wandb").exists():
                (old / "wandb").rename(local / "wandb")
        return local

    @_using_disk()
    def push(self, folder: RunFolder) -> None:
        """Makes the bucket, if there is one, what a run's local folder is.

        A rewind after which nothing has been saved yet may still be undone: it is not copied.

        Raises:
            RunError: another process has written to the run there; nothing of it is overwritten.
        """
        if self.store is None or folder.checkpoints.rewound.is_dir():
            return
        name, here, there = folder.path.name, Manifest.of(folder.path), self._own_manifest(folder)
        # What is about to be written over, or came after the point that was resumed from, must not
        # count as complete meanwhile. What is no longer kept here counts until all else is there.
        newest = max(here.steps, default=-1)
        other = {x for x in here.steps if here.checkpoint(x) != there.checkpoint(x)}
        there = self._forget(folder, there, [x for x in there.steps if x > newest or x in other])
        found = self._files(name)
        # A log may go further than the manifest says, if a push was killed before it wrote that.
        sizes = {x: (folder.path / x).stat().st_size for x in here.files if is_log(x)}
        longer = {x for x, size in sizes.items() if found.get(x) != size}
        if here.files == there.files and not longer:
            return
        changed = [x for x in here.files if here.files[x] != there.files.get(x) or x in longer]
        for logs in (False, True):
            if paths := [path for path in changed if is_log(path) == logs]:
                sources = [str(folder.path / path) for path in paths]
                self._do("put", sources, [self._path(name, path) for path in paths])
        self._write(folder, here)
        for path in found:
            # A push that was killed may have left files that no manifest names.
            ours = path in there.files or path.startswith("checkpoints/") or is_log(path)
            if ours and path not in here.files:
                self._do("rm_file", self._path(name, path))

    def claim(self, folders: Sequence[RunFolder]) -> None:
        """Takes the names of new runs.

        Raises:
            RunError: the bucket cannot be written to; folders that are new are gone again.
        """
        new = [folder for folder in folders if not read_marker(folder.path).ids]
        try:
            for folder in folders:
                self.push(folder)
        except RunError:
            for folder in new:
                name, ours = folder.path.name, read_marker(folder.path).ids
                shutil.rmtree(folder.path)
                with suppress(RunError):
                    there = self.manifest(name)
                    # Another process may have been faster: what is there is its.
                    if there is None or there.id in ours:
                        for path in self._files(name):
                            self._do("rm_file", self._path(name, path))
            raise

    def rewind(self, folder: RunFolder, step: int) -> None:
        """Has the next checkpoint replace those after a step, here and with the next push there.

        Raises:
            RunError: as :meth:`push`; or the local folder cannot be written to.
        """
        if self.url is not None:
            self._own_manifest(folder)
        folder.rewind(step)

    def _own_manifest(self, folder: RunFolder) -> Manifest:
        name = folder.path.name
        there = self.manifest(name) or Manifest()
        if there.id and there.id not in read_marker(folder.path).ids:
            raise RunError(
                f"another process has written to {self.place(name)} since; nothing of it was "
                "overwritten"
            )
        return there

    def _forget(self, folder: RunFolder, there: Manifest, steps: Sequence[int]) -> Manifest:
        left = there.without(steps)
        if steps:
            self._write(folder, left)
        return left

    def _write(self, folder: RunFolder, manifest: Manifest) -> None:
        # Its id is noted first: whether it was written may remain unknown.
        marker, now = read_marker(folder.path), datetime.now(UTC).isoformat()
        new = dataclasses.replace(manifest, id=secrets.token_hex(8), time=now)
        write_marker(folder.path, [*marker.ids, new.id], marker.files)
        path, content = self._path(folder.path.name, MANIFEST), new.text().encode()
        if getattr(self.store, "local_file", False):
            # Unlike an object, a file is there before its content is; so it is put there whole.
            self._do("pipe_file", f"{path}.new", content)
            self._do("mv", f"{path}.new", path)
        else:
            self._do("pipe_file", path, content)
        write_marker(folder.path, [new.id], new.files)

    def _fetch(self, name: str, there: Manifest, here: Manifest, to: Path) -> None:
        for path in there.files:
            (to / path).parent.mkdir(parents=True, exist_ok=True)
        wanted = [path for path, x in there.files.items() if here.files.get(path) != x]
        for path in there.files.keys() - set(wanted):
            shutil.copy2(self.folder / name / path, to / path)
        if wanted:
            targets = [str(to / path) for path in wanted]
            self._do("get", [self._path(name, path) for path in wanted], targets)
        got = Manifest.of(to).files
        for path in wanted:
            # A log may be newer than the manifest.
            if not is_log(path) and got.get(path) != there.files[path]:
                raise RunError(f"{self.place(name)} is damaged: {path} is not what was saved")

    def _files(self, name: str) -> dict[str, int]:
        """What the bucket has of a run, and how many bytes of each."""
        found: dict[str, Any] = self._do("find", self._path(name), detail=True)
        return {x.removeprefix(self._path(name, "")): found[x]["size"] for x in found}

    def _names(self) -> list[str]:
        if self.url is None:
            return []
        try:
            found: list[str] = self._do("ls", self.root, detail=False)
        except _MissingError:
            # Nothing has been written there yet; but the bucket itself must be there.
            with _reaching(self.url), suppress(PermissionError):
                if top := self.root.partition("/")[0]:
                    self.store.ls(top, detail=False)
            return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def _path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def _do(self, operation: str, *arguments: Any, **options: Any) -> Any:
        with _reaching(self.url):
            # Drivers remember listings, which other processes may have changed since.
            self.store.invalidate_cache()
            return getattr(self.store, operation)(*arguments, **options)


class _MissingError(RunError):
    """There is no such object."""


@contextmanager
def _reaching(url: str | None) -> Generator[None]:
    try:
        yield
    # Each driver raises errors of its own.
    except Exception as error:
        kind = _MissingError if isinstance(error, FileNotFoundError) else RunError
        reason = first_line(error)[:200]
        raise kind(f"cannot reach {url}: {reason}") from error
