"""The command line: train, watch, play, evaluate, inspect, export and plot."""

import argparse
import io
import os
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from hackmatrix.cli import evaluate, export, inspect, play, plot, train, watch
from ppo_mask.devices.platforms import require_platform
from ppo_mask.errors import RunError
from ppo_mask.runner import enable_compilation_cache

_COMMANDS = (train, watch, play, evaluate, inspect, export, plot)


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RunError(f"{message}; {self.prog} --help shows what there is")


def parser() -> argparse.ArgumentParser:
    """What the command line may say; what it cannot be is a ``RunError``."""
    whole = _Parser(
        prog="hackmatrix",
        description="Train on HackMatrix, and look at the game and at what an agent does in it.",
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_to(commands)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what a command line asks.

    Args:
        arguments: the words after the program's name; None for the process's own.

    Returns:
        The exit code: 0, or 2 with one line on standard error, or 130 after Ctrl+C; of ``train``,
        the trainer's.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # An arrow that the terminal's encoding lacks is a question mark, and not the end.
        sys.stdout.reconfigure(errors="replace")
    words = sys.argv[1:] if arguments is None else arguments
    if words and words[0] == train.NAME:
        return train.train(words[1:])
    try:
        options = parser().parse_args(words)
        if options.needs_device:
            require_platform()
            enable_compilation_cache()
        return options.run(options)
    except RunError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:
        # The reader of our output has enough. Python must not try to flush the rest.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
