"""What a command line says in one line: the user's mistakes, and warnings."""

import sys


class RunError(Exception):
    """Something that whoever started the run can put right.

    The message is one line that names what is wrong and what would be right. Command lines print it
    without a traceback and exit with a code that is not 0.
    """

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.split()))


def warn(message: str) -> None:
    """Prints a warning, one line on standard error."""
    print(f"warning: {message}", file=sys.stderr)
