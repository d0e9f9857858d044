"""Printing that survives a closed terminal and a pipe without a reader."""

import io
import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any, cast


@contextmanager
def outliving_the_screen() -> Generator[None]:
    """Inside the ``with`` block, printing never fails; output that cannot be written is dropped.

    Characters that the terminal's encoding lacks are printed as escape sequences.
    """
    before = sys.stdout, sys.stderr
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    # A stream is None without a console, or if a shell has closed it.
    sys.stdout, sys.stderr = (cast(Any, stream and _Tolerant(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Tolerant:
    """A text stream whose ``write`` and ``flush`` never fail."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._try(self._stream.flush)

    def _try(self, act: Callable[[], Any]) -> None:
        try:
            act()
        except (OSError, ValueError):
            # Later output is dropped, and Python's flush of the stream at exit does not fail.
            with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
                os.dup2(nothing.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
