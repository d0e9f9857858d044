"""Commands other than training.

``ppo-mask plot | inspect RUN`` works with runs of any program. A program made
with :func:`ppo_mask.runner.main` also has ``evaluate``, ``watch`` and ``export``, which need the
program's task. In Python, :func:`load_run` loads a run.
"""

import argparse
import sys
from typing import Any

from ppo_mask.runner._reader import CommandParser
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task

from ._evaluate import add_evaluate
from ._export import add_export
from ._inspect import add_inspect
from ._load import TrainedRun, load_run
from ._options import (
    MAX_SEED,
    add_command,
    add_files,
    add_folder,
    add_force,
    add_seed,
    number,
    refuse_existing,
    run_commands,
    tell,
    write,
)
from ._players import add_players, load_players
from ._plot import add_plot
from ._watch import add_watch

__all__ = [
    "MAX_SEED",
    "CommandParser",
    "TrainedRun",
    "add_command",
    "add_evaluate",
    "add_export",
    "add_files",
    "add_folder",
    "add_force",
    "add_inspect",
    "add_players",
    "add_plot",
    "add_seed",
    "load_players",
    "load_run",
    "number",
    "of_a_program",
    "of_any_run",
    "refuse_existing",
    "run_commands",
    "tell",
    "write",
]


def of_any_run() -> int:
    """Runs the program ``ppo-mask``: ``plot`` and ``inspect``, for any run."""
    parser = CommandParser(prog="ppo-mask", description="Look at runs of any program.")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_plot(commands)
    add_inspect(commands)
    return run_commands(parser, sys.argv[1:], lambda: None)


def of_a_program(
    task: Task[Any], defaults: RunConfig[Any], prog: str | None = None
) -> argparse.ArgumentParser:
    """Makes the parser for all commands of a program except ``train``, which has its own parser.

    Args:
        task: the program's task.
        defaults: the program's defaults.
        prog: the program's name, for ``--help``; None for the name of the program's file.
    """
    parser = CommandParser(prog=prog)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    commands.add_parser("train", add_help=False)  # Has a parser of its own, and is named here.
    add_evaluate(commands, task, defaults)
    add_watch(commands, task, defaults)
    add_export(commands, task, defaults)
    add_plot(commands)
    add_inspect(commands)
    return parser
