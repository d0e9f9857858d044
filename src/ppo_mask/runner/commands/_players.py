"""Options of commands in which policies play."""

import argparse
import dataclasses
from typing import Any, TypeVar

from ppo_mask.checkpoints._runs import LATEST
from ppo_mask.errors import RunError
from ppo_mask.games import Seat
from ppo_mask.networks._moments import RunningMoments
from ppo_mask.runner._phases import last_settings
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._load import TrainedRun, load_run
from ppo_mask.runner.commands._options import add_folder, add_seed, number
from ppo_mask.search import Search

Environment = TypeVar("Environment")


def add_players(
    parser: argparse.ArgumentParser, task: Task[Any], *, several: bool, max_steps: int
) -> None:
    """Adds the options that say who plays, and how.

    Args:
        parser: the command's parser.
        task: the program's task.
        several: whether several policies may play, one after another.
        max_steps: the default of ``--max-steps``.
    """
    parser.add_argument(
        "runs",
        nargs="*",
        metavar="RUN",
        help="a run's folder, name or URL, a checkpoint in it, or a saved policy (default: the "
        "newest run)",
    )
    parser.set_defaults(several=several)
    parser.add_argument("--latest", action="store_true", help="the newest run there is")
    add_folder(parser)
    parser.add_argument(
        "--policy",
        nargs="+",
        default=[],
        choices=task.policy_names,
        metavar="NAME",
        help=f"a policy that the program has: {', '.join(task.policy_names)}",
    )
    add_seed(parser, "of the first episode" * (not several))
    parser.add_argument(
        "--sample",
        action="store_true",
        help="sample a network's actions instead of taking the most probable",
    )
    parser.add_argument(
        "--max-steps",
        type=number(1),
        default=max_steps,
        metavar="N",
        help=f"steps after which an episode is cut off (default: {max_steps})",
    )
    parser.add_argument(
        "--search",
        type=number(1),
        metavar="N",
        help="think before each action: N simulated steps; needs the extra 'mctx'",
    )
    parser.add_argument(
        "--worlds",
        type=number(1),
        default=1,
        metavar="N",
        help="with --search: draws of what is hidden, each searched alone (default: 1)",
    )


def load_players(
    options: argparse.Namespace, task: Task[Environment], defaults: RunConfig[Environment]
) -> list[TrainedRun[Environment]]:
    """Loads the policies that play, in the order of the command line.

    Raises:
        RunError: there is no such policy, or several are given and only one may play.
    """
    places = [*options.runs, *[LATEST] * options.latest, *options.policy]
    if len(places) > 1 and not options.several:
        raise RunError(f"{' and '.join(places)}: give one policy; evaluate compares several")
    try:
        found = places or [LATEST]
        runs = [load_run(task, defaults, place, options.checkpoint_dir) for place in found]
    except RunError as error:
        hint = "" if places else f"; there are also --policy {'|'.join(task.policy_names)}"
        raise RunError(f"{error}{hint}") from error
    if options.search is None:
        return runs
    if vars(options).get("play") or vars(options).get("tournament"):
        raise RunError("--search is without --play and --tournament: opponents do not search")
    return [_searching(run, options, task) for run in runs]


def _searching(
    run: TrainedRun[Environment], options: argparse.Namespace, task: Task[Environment]
) -> TrainedRun[Environment]:
    """Returns a policy that searches; its name says how, and what the search knows."""
    if run.run_dir is None:
        raise RunError(f"--search is for networks: the policy {run.name} knows no values")
    last = last_settings(run.config)
    algorithm, arguments = last.algorithm, dict[str, Any]()
    if isinstance(run.env, Seat) and run.env.opponent is not None:
        arguments["env"] = Seat(run.env.game, run.policy, run.env.begins)
    if run.update is not None and getattr(algorithm, "normalize_rewards", False):
        prefix, moments = "own.reward_scaler.moments.", RunningMoments(())
        saved = run.run_dir.checkpoint(run.update).restore(moments, prefix)
        arguments["reward_scale"] = float(saved.deviation)
    arguments |= {"gamma": float(algorithm.gamma), **task.search(run, last)}
    search = Search(options.search, num_worlds=options.worlds, **arguments)
    name = f"{run.name}, {search.describe(run.env)}"
    return dataclasses.replace(run, name=name, search=search)
