"""``train``: the trainer, with the game's settings. It reads its own command line."""

from collections.abc import Sequence
from typing import Any

from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.runner import main

NAME = "train"


def add_to(commands: Any) -> None:
    """Adds the command to the list of commands; :func:`train` reads the words that follow it."""
    commands.add_parser(NAME, help="train an agent", add_help=False)


def train(arguments: Sequence[str]) -> int:
    """Trains as the words after the command ask; see :func:`ppo_mask.runner.main`."""
    description = "Trains an agent on HackMatrix with PPO."
    return main(
        TASK, DEFAULTS, arguments, description, prog=f"hackmatrix {NAME}", with_commands=False
    )
