"""One-line errors and warnings."""

import inspect
import os
import sys
import traceback
from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import TracebackType
from typing import Any

_LIBRARIES = ("ppo_mask", "jax", "equinox", "jaxtyping", "beartype", "contextlib")
_QUIET = ContextVar("quiet", default=False)


class RunError(Exception):
    """An error that the user can correct.

    The message is one line that names the mistake and a fix. Command lines print the
    message without a traceback, and exit with a nonzero code.

    Args:
        message: the error's text; line breaks become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


class FieldError(ValueError):
    """A field of a config has an invalid value.

    The message begins with the field's name, which a command line replaces with the flag's name.

    Args:
        field: the field's name.
        problem: what is wrong with the value, such as "must be at least 1, got 0".
    """

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field} {problem}")
        self.field, self.problem = field, problem


def check_at_least(limit: float, **numbers: Any) -> None:
    """Checks that numbers are at least ``limit``; None passes.

    Raises:
        FieldError: a number is smaller than ``limit``; the message names the number.
    """
    for name, number in numbers.items():
        if number is not None and not number >= limit:
            raise FieldError(name, f"must be at least {limit}, got {number}")


class ProtocolError(RunError, AssertionError):
    """An environment breaks a law of the protocol; the one-line message names the law."""


class WrongPart(RunError, ValueError):
    """A custom part, such as a loss or a network, fails or returns what training cannot use."""


@contextmanager
def short_tracebacks() -> Generator[None]:
    """Re-raises a ``RunError`` without JAX's frames in its traceback."""
    try:
        yield
    except RunError as error:
        raise type(error)(str(error)) from None


def user_line(trace: TracebackType | None = None) -> str:
    """Finds the innermost stack frame in the user's own code, as `` (walk.py, line 12)``.

    Args:
        trace: an error's traceback; None for the current stack.

    Returns:
        File and line in parentheses, after a space; empty if there is no such frame.
    """
    here = inspect.currentframe()
    calls = reversed([*traceback.walk_tb(trace)]) if trace else traceback.walk_stack(here)
    for frame, line in calls:
        if frame.f_globals.get("__name__", "").partition(".")[0] not in _LIBRARIES:
            return f" ({Path(frame.f_code.co_filename).name}, line {line})"
    return ""


def reason_of(error: Exception) -> str:
    """Describes an error of a user's code in one line, with the line of code that raised it."""
    kind = "KeyError " if isinstance(error, KeyError) else ""
    is_choice = type(error).__name__ == "TracerBoolConversionError"
    instead = "; use jnp.where or jax.lax.cond to branch on a traced value" if is_choice else ""
    return f"{kind}{first_line(error).rstrip('.')}{user_line(error.__traceback__)}{instead}"


@contextmanager
def naming(part: str) -> Generator[None]:
    """Replaces an error of a custom part, such as a loss, by one line while the part is traced.

    Args:
        part: what it is, for the error's message.

    Raises:
        WrongPart: the part fails; the message names it, and the line of code.
    """
    try:
        yield
    except RunError:
        raise
    except Exception as error:  # A custom part may raise anything.
        raise WrongPart(f"{part} fails: {reason_of(error)}") from error


def warn(message: str) -> None:
    """Prints a warning on standard error.

    Args:
        message: one line.
    """
    if not _QUIET.get():
        print(f"warning: {message}", file=sys.stderr)


@contextmanager
def no_warnings() -> Generator[None]:
    """Prints no warnings in this thread, where code is traced again that has given them."""
    before = _QUIET.set(True)
    try:
        yield
    finally:
        _QUIET.reset(before)


def first_line(error: BaseException) -> str:
    """Returns the first line of an error's message; if this line is empty, the error's type."""
    return str(error).partition("\n")[0] or type(error).__name__


def describe_error(error: BaseException) -> str:
    """Describes an error in one line; one of the system with the file, or the user's line."""
    if not isinstance(error, OSError):
        return first_line(error)
    reason = error.strerror or first_line(error)
    if error.filename is not None:
        return f"cannot use {os.fsdecode(error.filename)}: {reason}"
    return f"{reason}{user_line(error.__traceback__)}"
