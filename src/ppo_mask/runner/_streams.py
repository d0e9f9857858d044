"""Printing that survives a closed terminal and a pipe without a reader."""

import io
import os
import sys
from collections.abc import Generator
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
    sys.stdout, sys.stderr = (cast(Any, _Tolerant(stream)) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before


class _Tolerant:
    """A text stream whose ``write`` and ``flush`` never fail."""

    def __init__(self, stream: Any) -> None:
        # The stream is None without a console, or if a shell has closed it.
        self._stream = io.StringIO() if stream is None else stream
        self._is_gone = stream is None

    def write(self, text: str) -> int:
        if not self._is_gone:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._give_up()
        return len(text)

    def flush(self) -> None:
        if not self._is_gone:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._give_up()

    def _give_up(self) -> None:
        self._is_gone = True
        # Python flushes the stream once more at exit, which must not fail either.
        with suppress(OSError, ValueError), open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), self._stream.fileno())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
