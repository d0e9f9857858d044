"""Errors and warnings of one line."""

import sys


class RunError(Exception):
    """An error that the user can correct.

    The message is one line that names what is wrong and what would be right. Command lines print it
    without a traceback and exit with a code that is not 0.

    Args:
        message: the text; line breaks become spaces.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def warn(message: str) -> None:
    """Prints a warning on standard error.

    Args:
        message: one line.
    """
    print(f"warning: {message}", file=sys.stderr)
