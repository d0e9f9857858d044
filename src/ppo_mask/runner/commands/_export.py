"""``export``: writes a policy to a file for programs without JAX."""

import argparse
from typing import Any

from ppo_mask.checkpoints._runs import expand_user
from ppo_mask.export import export_policy
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._load import load_run
from ppo_mask.runner.commands._options import (
    add_command,
    add_folder,
    add_force,
    refuse_existing,
    tell,
)


def add_export(commands: Any, task: Task[Any], defaults: RunConfig[Any]) -> None:
    """Adds the command to a program's command line."""

    def run(options: argparse.Namespace) -> int:
        refuse_existing([options.file], options.force)
        run = load_run(task, defaults, options.run, options.checkpoint_dir)
        export_policy(run.policy, run.env, options.file)
        tell(f"wrote {options.file}")
        return 0

    help = "write a policy to a file for programs without JAX"
    parser = add_command(commands, "export", run, help)
    where = "a run's folder, name or URL, a checkpoint in it, a saved policy, or latest"
    parser.add_argument("run", metavar="RUN", help=where)
    add_folder(parser)
    parser.add_argument("file", type=expand_user, metavar="FILE", help=".onnx or .npz")
    add_force(parser)
