"""A file that a log is appended to."""

from pathlib import Path
from typing import final

from ppo_mask.errors import warn


@final
class LogFile:
    """A file that is appended to, also when the disk is full for a while.

    If writing fails, it warns, keeps the content, and writes it with the next. So the file never
    has a torn line in its middle.

    Args:
        path: of the file, which may be there already.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # An environment may change the working directory.
        self._size = path.stat().st_size if path.exists() else 0
        self._unwritten = b""

    def append(self, content: bytes) -> None:
        """Appends the content, after any that could not be written before."""
        was_behind = bool(self._unwritten)
        self._unwritten += content
        try:
            with self._path.open("ab") as file:
                if file.tell() > self._size:
                    file.truncate(self._size)  # A try that failed got so far.
                file.write(self._unwritten)
        except OSError as error:
            if not was_behind:
                warn(
                    f"cannot write {self._path}: {error.strerror}; training goes on, and each log "
                    "line is the next try"
                )
        else:
            self._size += len(self._unwritten)
            self._unwritten = b""

    def close(self) -> None:
        """Tries once more to write what is left; warns if it is lost."""
        if self._unwritten:
            self.append(b"")
        if self._unwritten:
            warn(f"the end of {self._path} is lost: it could not be written")
            self._unwritten = b""
