"""Reads and writes a bucket through fsspec. No object is ever half written.

fsspec comes with Orbax; the package for each kind of object store is an extra.
"""

from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, final

from ppo_mask.errors import RunError, first_line

_EXTRAS = {"gs": "gcs", "gcs": "gcs", "s3": "s3", "s3a": "s3"}


class MissingError(RunError):
    """There is no such object."""


@final
@dataclass(frozen=True)
class Bucket:
    """A folder of run folders in an object store; an unreachable store raises a RunError."""

    url: str
    store: Any  # An fsspec.AbstractFileSystem.
    root: str  # The folder's path in the store.

    def folders(self) -> list[str]:
        """Lists the names of the run folders."""
        found: list[str] = []
        with suppress(MissingError):  # Nothing has been written to the folder yet.
            found = self._do("ls", self.root, detail=False)
        return [path.rstrip("/").rpartition("/")[2] for path in found]

    def files(self, folder: str) -> dict[str, int]:
        """Returns the sizes in bytes of the objects in a folder, by path."""
        found: dict[str, Any] = self._do("find", self._path(folder), detail=True)
        sizes = {x.removeprefix(self._path(folder, "")): found[x]["size"] for x in found}
        # An object may have any name, even one whose local file would be outside the folder.
        return {x: sizes[x] for x in sizes if x == str(PurePosixPath("/", x))[1:] and ".." not in x}

    def read(self, folder: str, path: str) -> bytes | None:
        """Reads an object; None if there is no such object."""
        try:
            return self._do("cat_file", self._path(folder, path))
        except MissingError:
            return None

    def write(self, folder: str, path: str, content: bytes) -> None:
        """Writes or replaces an object."""
        target = self._path(folder, path)
        if getattr(self.store, "local_file", False):
            # A file, unlike an object, exists before it is complete: write it, then rename it.
            self._do("pipe_file", f"{target}.new", content)
            self._do("mv", f"{target}.new", target)
        else:
            self._do("pipe_file", target, content)

    def put(self, folder: str, paths: Sequence[str], local: Path) -> None:
        """Writes or replaces objects with the contents of files in a local folder."""
        if paths:
            self._do("put", [str(local / x) for x in paths], [self._path(folder, x) for x in paths])

    def get(self, folder: str, paths: Sequence[str], local: Path) -> None:
        """Copies objects to files in a local folder."""
        if paths:
            self._do("get", [self._path(folder, x) for x in paths], [str(local / x) for x in paths])

    def delete(self, folder: str, paths: Iterable[str]) -> None:
        """Deletes objects, one after another; some may be gone already."""
        for path in paths:
            with suppress(MissingError):
                self._do("rm_file", self._path(folder, path))

    def _path(self, *parts: str) -> str:
        return "/".join((self.root, *parts))

    def _do(self, operation: str, *arguments: Any, **options: Any) -> Any:
        with _reaching(self.url):
            # Drivers cache listings, but other processes may have changed the folder since.
            self.store.invalidate_cache()
            return getattr(self.store, operation)(*arguments, **options)


def open_bucket(place: str) -> tuple[Bucket, list[str]]:
    """Opens the bucket at a URL such as ``gs://bucket/runs``; also returns the URL's parts."""
    url = place.rstrip("/")
    scheme, _, path = url.partition("://")
    parts = [part for part in path.split("/") if part]
    if not parts or {".", ".."} & set(parts):
        raise RunError(f"{url} is not the URL of a folder of runs, such as gs://bucket/runs")
    if "::" in url:
        # fsspec would read such a URL from another place than it writes to.
        raise RunError(f"{url} is a chain of URLs; give one URL without ::")
    try:
        # Imported here, since most runs need no bucket.
        from fsspec import get_filesystem_class
        from fsspec.core import url_to_fs

        get_filesystem_class(scheme)
    except ImportError as error:
        extra = _EXTRAS.get(scheme)
        hint = f"pip install 'ppo-mask[{extra}]'" if extra else str(error)
        raise RunError(f"{scheme}:// needs a package that is not installed: {hint}") from error
    except ValueError as error:
        raise RunError(
            f"{url}: unknown scheme {scheme}://; give gs://, s3://, or another that fsspec knows"
        ) from error
    with _reaching(url):
        # Only a local file system needs folders to be made.
        options = {"auto_mkdir": True} if scheme in ("file", "local") else {}
        store, root = url_to_fs(url, **options)
    return Bucket(url, store, str(root)), [scheme, *parts]


@contextmanager
def _reaching(url: str) -> Generator[None]:
    try:
        yield
    # Each driver has its own classes of errors.
    except Exception as error:
        kind = MissingError if isinstance(error, FileNotFoundError) else RunError
        reason = first_line(error)[:200]
        raise kind(f"cannot reach {url}: {reason}") from error
