"""A folder of runs in a bucket, by its URL: what there is, and files going there and back.

Object stores are reached through fsspec, which Orbax brings; the packages for its kinds are extras.
"""

from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ppo_mask.checkpoints._run_folder import cache_folder
from ppo_mask.checkpoints.bucket._manifest import MANIFEST, Manifest
from ppo_mask.errors import RunError

_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}


def is_url(place: str) -> bool:
    """Whether this is no local path."""
    return "://" in place


def open_bucket(url: str) -> "Bucket":
    """The folder of runs at a URL, such as ``gs://bucket/runs``.

    Raises:
        RunError: it is no such URL, or the package for its kind is not installed.
    """
    url = url.rstrip("/")
    scheme, _, place = url.partition("://")
    parts = [part for part in place.split("/") if part]
    if not parts or {".", ".."} & set(parts):
        raise RunError(f"{url} is not the URL of a folder of runs, such as gs://bucket/runs")
    try:
        # Imported here: whoever needs no bucket needs none of it.
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
    return Bucket(url, cache_folder().joinpath("runs", scheme, *parts), store, str(root))


@dataclass(frozen=True)
class Bucket:
    """A folder of runs in an object store.

    All that reaches the store raises a RunError where that does not work.

    Attributes:
        url: of the folder.
        local: the folder that it is a mirror of.
        store: the object store, as fsspec shows it.
        root: the folder's path there.
    """

    url: str
    local: Path
    store: Any
    root: str

    def runs(self) -> dict[str, str]:
        """The runs that there are, there or in the local folder, and their URLs."""
        here = [path.name for path in self.local.glob("[!.]*")]
        return {name: f"{self.url}/{name}" for name in (*here, *self._names())}

    def newest(self) -> str:
        """The run whose manifest is the newest, of those that have a checkpoint.

        Raises:
            RunError: there is none.
        """
        found = ((self.manifest(name), name) for name in self._names())
        times = [(m.time, name) for m, name in found if m is not None and m.steps]
        if not times:
            raise RunError(f"there is no run with a checkpoint in {self.url}")
        return max(times)[1]

    def manifest(self, name: str) -> Manifest | None:
        """What there is of a run; None if nothing.

        Raises:
            RunError: it is no manifest.
        """
        with _reaching(self.url):
            self.store.invalidate_cache()
            try:
                content: bytes = self.store.cat_file(self._path(name, MANIFEST))
            except FileNotFoundError:
                return None
        return Manifest.parse(content, f"{self.url}/{name}/{MANIFEST}")

    def write_manifest(self, name: str, manifest: Manifest) -> None:
        """Says what there is of a run from now on."""
        with _reaching(self.url):
            self.store.pipe_file(self._path(name, MANIFEST), manifest.text().encode())

    def put(self, name: str, paths: Iterable[str], local: Path) -> None:
        """Copies files of a run from its local folder, in any order."""
        sources, targets = self._both(name, paths, local)
        if sources:
            with _reaching(self.url):
                self.store.put(sources, targets)

    def get(self, name: str, paths: Iterable[str], local: Path) -> None:
        """Copies files of a run into a local folder.

        Raises:
            FileNotFoundError: one is not there.
        """
        targets, sources = self._both(name, paths, local)
        for target in targets:
            Path(target).parent.mkdir(parents=True, exist_ok=True)
        if sources:
            with _reaching(self.url, but=FileNotFoundError):
                self.store.get(sources, targets)

    def files(self, name: str) -> list[str]:
        """The paths of a run's files."""
        with _reaching(self.url):
            self.store.invalidate_cache()
            found: list[str] = self.store.find(self._path(name))
        return [path.removeprefix(self._path(name, "")) for path in found]

    def delete(self, name: str, path: str) -> None:
        """Deletes a file of a run."""
        with _reaching(self.url):
            self.store.rm_file(self._path(name, path))

    def _names(self) -> list[str]:
        with _reaching(self.url):
            self.store.invalidate_cache()
            try:
                found: list[str] = self.store.ls(self.root, detail=False)
            except FileNotFoundError:
                # Nothing has been written there yet; but the bucket itself must be there.
                if top := self.root.partition("/")[0]:
                    with suppress(PermissionError):
                        self.store.ls(top, detail=False)
                return []
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def _path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def _both(self, name: str, paths: Iterable[str], local: Path) -> tuple[list[str], list[str]]:
        paths = list(paths)
        return [str(local / path) for path in paths], [self._path(name, path) for path in paths]


@contextmanager
def _reaching(url: str, but: type[Exception] = RunError) -> Generator[None]:
    try:
        yield
    except (RunError, but):
        raise
    # Each driver raises errors of its own.
    except Exception as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise RunError(f"cannot reach {url}: {reason}") from error
