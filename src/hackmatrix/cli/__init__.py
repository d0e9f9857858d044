"""The command line: train, watch, play, evaluate, inspect, export and plot."""

import argparse
import sys
from collections.abc import Sequence

from hackmatrix.cli import play, watch
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask import runner
from ppo_mask.runner.commands import (
    CommandParser,
    add_evaluate,
    add_export,
    add_inspect,
    add_plot,
    run_commands,
)

_TITLES = {"stats/mean_stage": "mean stage", "stats/win_rate": "share of games won"}


def parser() -> argparse.ArgumentParser:
    """The parser of the command line; raises usage errors as ``RunError``."""
    whole = CommandParser(
        prog="hackmatrix",
        description="Train on HackMatrix, and look at the game and at what an agent does in it.",
    )
    commands = whole.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("train", help="train an agent", add_help=False)  # parses its own options
    watch.add_to(commands)
    play.add_to(commands)
    add_evaluate(commands, TASK, DEFAULTS, episodes=1000, max_steps=1000)
    add_inspect(commands)
    add_export(commands, TASK, DEFAULTS)
    add_plot(commands, _TITLES)
    return whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        arguments: the command-line arguments; None for ``sys.argv[1:]``.

    Returns:
        The exit code: 0; 2 after an error, which takes one line on standard error; 130 after
        Ctrl+C. ``train`` returns the exit code of :func:`ppo_mask.runner.main`.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    if words and words[0] == "train":
        about = "Trains an agent on HackMatrix with PPO."
        name = "hackmatrix train"
        return runner.main(TASK, DEFAULTS, words[1:], about, prog=name, with_commands=False)
    return run_commands(parser(), words, runner.enable_compilation_cache)
