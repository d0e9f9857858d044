"""``export``: saves a checkpoint's network for other frameworks."""

import argparse
from pathlib import Path
from typing import Any

from hackmatrix.play.agents import load_agent
from hackmatrix.play.export import export_policy
from ppo_mask.checkpoints import expand_user
from ppo_mask.errors import RunError
from ppo_mask.runner.commands import add_command, add_folder, add_force, refuse_existing, write


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(commands, "export", _run, "write a network as NumPy arrays")
    parser.add_argument(
        "checkpoint",
        metavar="CHECKPOINT",
        help='a checkpoint, a run\'s folder, a URL of one, a saved policy, or "latest"',
    )
    parser.add_argument("out", type=expand_user, metavar="OUT.npz", help="the file to write")
    add_folder(parser)
    add_force(parser)


def _run(options: argparse.Namespace) -> int:
    if Path(options.out).suffix != ".npz":
        raise RunError(f"the file to write must end in .npz, got {options.out}")
    refuse_existing([options.out], options.force)
    agent = load_agent(options.checkpoint, options.checkpoint_dir)
    write(options.out, export_policy(agent.model), options.force)
    return 0
