"""An append-only file for a log."""

from pathlib import Path
from typing import final

from ppo_mask.errors import warn


@final
class LogFile:
    """An append-only file that survives a temporarily full disk.

    A failed write prints a warning. The unwritten content is kept, and written before the next
    content. So the file never has a torn line in the middle.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()  # An environment may change the working directory.
        self._size: int | None = None  # Until the first write.
        self._unwritten = b""

    def append(self, content: bytes) -> bool:
        """Appends the content and any unwritten content; returns whether the file has all now."""
        was_behind = bool(self._unwritten)
        self._unwritten += content
        try:
            with self._path.open("ab") as file:
                self._size = file.tell() if self._size is None else self._size
                if file.tell() > self._size:
                    file.truncate(self._size)  # Drops what a failed write got into the file.
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
        return not self._unwritten

    def close(self) -> None:
        """Tries once more to write any unwritten content; warns if that fails."""
        if self._unwritten:
            self.append(b"")
        if self._unwritten:
            warn(f"the end of {self._path} is lost: it could not be written")
            self._unwritten = b""
