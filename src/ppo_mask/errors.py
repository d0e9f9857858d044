"""Errors and warnings of one line."""

import inspect
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

_LIBRARIES = ("ppo_mask", "hackmatrix", "jax", "equinox", "jaxtyping", "beartype", "contextlib")


class RunError(Exception):
    """An error that the user can correct.

    The message is one line that names what is wrong and what would be right. Command lines print it
    without a traceback and exit with a code that is not 0.

    Args:
        message: the text; line breaks become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class FieldError(ValueError):
    """A field of a config has a value that cannot work.

    The message begins with the field's name. A command line puts its flag there.

    Args:
        field: its name.
        problem: what is wrong with its value, such as "must be at least 1, got 0".
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


def check_at_least(limit: float, **numbers: Any) -> None:
    """Makes sure that numbers are not too small; None passes.

    Raises:
        FieldError: one is; the message names it.
    """
    for name, number in numbers.items():
        if number is not None and not number >= limit:
            raise FieldError(name, f"must be at least {limit}, got {number}")


class ProtocolError(RunError, AssertionError):
    """An environment breaks a law of the protocol; the message is one line and names it."""


@contextmanager
def short_tracebacks() -> Generator[None]:
    """Errors of one line leave without the hundred lines of JAX's frames that they came through."""
    try:
        yield
    except RunError as error:
        raise type(error)(str(error)) from None


def user_line(trace: TracebackType | None = None) -> str:
    """The innermost line of a program that is in no library, as `` (walk.py, line 12)``.

    Args:
        trace: of an error; None for where the caller is called from.

    Returns:
        The line in parentheses, after a space; empty if there is none.
    """
    here = inspect.currentframe()
    calls = reversed([*traceback.walk_tb(trace)]) if trace else traceback.walk_stack(here)
    for frame, line in calls:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            return f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return ""


def warn(message: str) -> None:
    """Prints a warning on standard error.

    Args:
        message: one line.
    """
    print(f"warning: {message}", file=sys.stderr)


def first_line(error: BaseException) -> str:
    """What an error says, in one line; its type, if it says nothing."""
    return str(error).partition("\n")[0] or type(error).__name__


def describe_os_error(error: OSError) -> str:
    """What the system refused; without a file's name it is what was being written, or printed."""
    reason = error.strerror or error
    if error.filename is None:
        return f"cannot write: {reason}"
    return f"cannot use {os.fsdecode(error.filename)}: {reason}"
