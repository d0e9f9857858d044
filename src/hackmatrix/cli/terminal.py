"""A full screen in the terminal that reads keys, and always restores the terminal."""

import importlib.util
import os
import select
import shutil
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Any, no_type_check

COLUMNS, ROWS = 80, 24

_ENTER = "\x1b[?1049h\x1b[?25l"  # the alternate screen; no cursor
_LEAVE = "\x1b[0m\x1b[?25h\x1b[?1049l"
_ESCAPE_TIME = 0.05
_SEQUENCES = {"A": "up", "B": "down", "C": "right", "D": "left", "H": "home", "F": "end"}


def interactive() -> bool:
    """Whether input and output are a terminal that can be drawn on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        return False
    return importlib.util.find_spec("termios") is not None  # Windows has no termios.


class Terminal:
    """A context manager that takes the full screen and reads keys as they are pressed.

    The terminal is restored even after an error, Ctrl+C or SIGTERM.

    If a signal arrives during a callback of the garbage collector, Python drops the exception that
    the signal's handler raises. JAX registers such callbacks. So the handler also stores the
    signal, and :meth:`key` raises the exception again.
    """

    def __init__(self) -> None:
        self._fd = sys.stdin.fileno()
        self._saved: list[Any] = []
        self._handlers: dict[signal.Signals, Any] = {}
        self._signal: int | None = None

    def __enter__(self) -> "Terminal":
        import termios
        import tty

        self._saved = termios.tcgetattr(self._fd)
        for number in (signal.SIGINT, signal.SIGTERM):
            self._handlers[number] = signal.signal(number, self._stop)
        tty.setcbreak(self._fd)
        sys.stdout.write(_ENTER)
        sys.stdout.flush()
        return self

    def __exit__(self, *error: object) -> None:
        import termios

        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        termios.tcsetattr(self._fd, termios.TCSADRAIN, self._saved)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)

    def draw(self, lines: Sequence[str]) -> None:
        """Shows lines from the top left corner."""
        columns, rows = shutil.get_terminal_size((COLUMNS, ROWS))
        if columns < COLUMNS or rows < ROWS:
            lines = [f"{columns}x{rows} is too small", f"{COLUMNS}x{ROWS} is needed", "q quits"]
        body = "\x1b[K\n".join(lines)
        sys.stdout.write(f"\x1b[H{body}\x1b[K\x1b[J")
        sys.stdout.flush()

    def key(self, timeout: float | None) -> str:
        """The next key, or "" if none is pressed in time.

        A key is a character, such as "q", or one of the names "up", "down", "left", "right",
        "home", "end" and "escape".

        Args:
            timeout: how many seconds to wait for a key; None for no limit.

        Raises:
            EOFError: the terminal is gone.
        """
        character = self._read(timeout)
        if character != "\x1b":
            return character
        if self._read(_ESCAPE_TIME) not in ("[", "O"):
            return "escape"
        last = self._read(_ESCAPE_TIME)
        while last and not last.isalpha() and last != "~":
            last = self._read(_ESCAPE_TIME)
        return _SEQUENCES.get(last, "")

    # Not type-checked: beartype would take a lock that the interrupted code may hold.
    @no_type_check
    def _stop(self, number: int, frame: FrameType | None = None) -> None:
        self._signal = number
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    def _read(self, timeout: float | None) -> str:
        if self._signal is not None:
            self._stop(self._signal)
        if not select.select([self._fd], [], [], timeout)[0]:
            return ""
        read = os.read(self._fd, 1)
        if not read:
            raise EOFError("the terminal is gone")
        return read.decode(errors="replace")
