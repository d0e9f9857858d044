"""The command line: train, watch, play, evaluate, inspect, export, plot and compare."""

import argparse
import sys
from collections.abc import Sequence

from hackmatrix.cli import evaluate, export, play, train, watch
from ppo_mask.runner import enable_compilation_cache
from ppo_mask.runner.commands import CommandParser, add_compare, add_inspect, add_plot, run_commands

_TITLES = {"stats/mean_stage": "mean stage", "stats/win_rate": "share of games won"}


def parser() -> argparse.ArgumentParser:
    """What the command line may say; what it cannot be is a ``RunError``."""
    whole = CommandParser(
        prog="hackmatrix",
        description="Train on HackMatrix, and look at the game and at what an agent does in it.",
        allow_abbrev=False,
    )
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    for command in (train, watch, play, evaluate):
        command.add_to(commands)
    add_inspect(commands)
    export.add_to(commands)
    add_plot(commands, _TITLES)
    add_compare(commands)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Does what a command line asks.

    Args:
        arguments: the words after the program's name; None for the process's own.

    Returns:
        The exit code: 0, or 2 with one line on standard error, or 130 after Ctrl+C; of ``train``,
        the trainer's.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == train.NAME:
        return train.train(words[1:])
    return run_commands(parser(), words, enable_compilation_cache)
