"""``evaluate``: plays episodes with a run's policy."""

import argparse
from typing import Any

import jax

from ppo_mask.errors import RunError
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._load import TrainedRun, load_run
from ppo_mask.runner.commands._options import (
    add_command,
    add_run,
    add_seed,
    columns,
    number,
    to_json,
)
from ppo_mask.training import evaluate

A_POLICY = (
    "a run's folder, name or URL, a checkpoint in it, or a saved policy, which plays in the "
    "program's default environment"
)


def add_evaluate(commands: Any, task: Task[Any], defaults: RunConfig[Any]) -> None:
    """Adds the command to a program's command line."""
    parser = add_command(
        commands,
        "evaluate",
        lambda options: _run(options, task, defaults),
        "play episodes with a run's policy and say how they went",
    )
    add_run(parser, A_POLICY)
    parser.add_argument(
        "--episodes", type=number(1), default=100, metavar="N", help="(default: 100)"
    )
    parser.add_argument(
        "--max-steps",
        type=number(1),
        default=10_000,
        metavar="N",
        help="steps after which an episode is truncated (default: 10000)",
    )
    add_play(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def add_play(parser: argparse.ArgumentParser) -> None:
    """Adds the options for how the policy plays."""
    add_seed(parser)
    parser.add_argument(
        "--sample",
        action="store_true",
        help="sample actions from the policy instead of taking the most probable",
    )


def _run(options: argparse.Namespace, task: Task[Any], defaults: RunConfig[Any]) -> int:
    run: TrainedRun[Any] = load_run(task, defaults, options.run, options.checkpoint_dir)
    try:
        result = evaluate(
            run.policy,
            run.env,
            jax.random.key(options.seed),
            options.episodes,
            greedy=not options.sample,
            max_steps=options.max_steps,
            metrics=task.metrics,
        )
    except ValueError as error:  # A mask that allows no action.
        raise RunError(str(error)) from error
    if options.json:
        about = {"run": str(run.run_dir.path), "update": run.update}
        print(to_json(about | result.values))
        return 0
    of = "" if run.update is None else f", update {run.update:,}"
    print(f"{run.run_dir.path}{of}: {options.episodes:,} episodes\n")
    spread = f"{result.mean_return:.4g}, deviation {result.std_return:.4g}"
    rows = [["return", spread], ["cut off", f"{int(result.truncated.sum()):,}"]]
    names = [name for name in result.values if not name.endswith(("episodes", "episode_return"))]
    rows += [[name.removeprefix("eval/"), f"{result.values[name]:.4g}"] for name in names]
    print(columns(rows))
    return 0
