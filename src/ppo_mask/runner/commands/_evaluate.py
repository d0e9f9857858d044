"""``evaluate``: how well policies play, side by side."""

import argparse
from collections.abc import Sequence
from typing import Any

import jax

from ppo_mask.errors import RunError
from ppo_mask.games import Seat
from ppo_mask.runner._settings import RunConfig
from ppo_mask.runner._task import Task
from ppo_mask.runner.commands._load import TrainedRun
from ppo_mask.runner.commands._options import add_command, columns, number, tell, to_json
from ppo_mask.runner.commands._players import add_players, load_players
from ppo_mask.training import Estimate, EvaluationResult, evaluate, play_each


def add_evaluate(
    commands: Any,
    task: Task[Any],
    defaults: RunConfig[Any],
    *,
    episodes: int = 100,
    max_steps: int = 10_000,
) -> None:
    """Adds the command to a program's command line.

    Args:
        commands: the program's commands, from ``add_subparsers``.
        task: the program's task.
        defaults: the program's defaults.
        episodes: the default of ``--episodes``.
        max_steps: the default of ``--max-steps``.
    """
    parser = add_command(
        commands,
        "evaluate",
        lambda options: _run(options, task, defaults),
        "play many episodes with each policy, and print means with 95% intervals",
    )
    add_players(parser, task, several=True, max_steps=max_steps)
    parser.add_argument(
        "--episodes", type=number(1), default=episodes, metavar="N", help=f"(default: {episodes})"
    )
    parser.add_argument(
        "--tournament",
        action="store_true",
        help="play the policies against each other, where the environment is a seat in a game",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _run(options: argparse.Namespace, task: Task[Any], defaults: RunConfig[Any]) -> int:
    runs = load_players(options, task, defaults)
    try:
        return _tournament(options, runs) if options.tournament else _evaluate(options, runs, task)
    except ValueError as error:  # For example, a mask that allows no action.
        raise RunError(str(error)) from error


def _evaluate(options: argparse.Namespace, runs: Sequence[TrainedRun[Any]], task: Task[Any]) -> int:
    results: list[tuple[TrainedRun[Any], EvaluationResult]] = []
    for run in runs:
        tell(f"{options.episodes:,} episodes by {run.name} ...")
        result = evaluate(
            run.policy,
            run.env,
            jax.random.key(options.seed),
            options.episodes,
            greedy=run.plays_greedily(options.sample),
            max_steps=options.max_steps,
            metrics={**task.metrics, **task.evaluate_metrics},
            search=run.search,
        )
        results.append((run, result))
    print(to_json([_facts(*each) for each in results]) if options.json else _table(results))
    return 0


def _facts(run: TrainedRun[Any], result: EvaluationResult) -> dict[str, Any]:
    return {
        "name": run.name,
        "run": run.run_dir and str(run.run_dir.path),
        "update": run.update,
        "episodes": len(result.episode_return),
        "cut_off": int(result.truncated.sum()),
        "estimates": {name: x._asdict() for name, x in result.estimates.items()},
        **result.values,
    }


def _tournament(options: argparse.Namespace, runs: Sequence[TrainedRun[Any]]) -> int:
    env, names = runs[0].env, [run.name for run in runs]
    if not isinstance(env, Seat):
        raise RunError("--tournament is for an environment that is a ppo_mask.games.Seat")
    if len(set(names)) < len(names):
        raise RunError("--tournament needs policies of different names")
    tell(f"{options.episodes:,} games of each pair of {', '.join(names)} ...")
    players = {run.name: run.policy for run in runs}
    key, max_steps = jax.random.key(options.seed), options.max_steps
    found = play_each(players, env.game, key, options.episodes, max_steps=max_steps)
    if options.json:
        points = {f"{a} / {b}": found.points(a, b)._asdict() for a, b in found.outcomes}
        elo = {name: rating._asdict() for name, rating in found.elo.items()}
        print(to_json({"points": points, "elo": elo}))
        return 0
    rows = [["points of / against", *names, "Elo"]]
    for name in names:
        cells = ["" if name == x else _interval(found.points(name, x), True) for x in names]
        elo = found.elo[name]
        rows.append([name, *cells, f"{elo.mean:.0f} [{elo.low:.0f}, {elo.high:.0f}]"])
    print(f"{columns(rows)}\n\nA draw is half a point. In brackets: 95% intervals.")
    return 0


def _table(found: Sequence[tuple[TrainedRun[Any], EvaluationResult]]) -> str:
    """Formats results as text, with a column for each policy."""
    runs, results = zip(*found, strict=True)
    of_episodes, estimates = results[0].episode_metrics, [x.estimates for x in results]

    def row(name: str, is_share: bool = False) -> list[str]:
        return [name, *(_interval(x[name], is_share) if name in x else "-" for x in estimates)]

    rows = [["", *(run.name for run in runs)], row("return")]
    rows += [row(name, values.dtype == bool) for name, values in of_episodes.items()]
    rows.append(row("length"))
    rows.append(["cut off", *(f"{int(x.truncated.sum()):,}" for x in results)])
    rows.append([])
    for name in dict.fromkeys(name for x in results for name in x.values):
        label, values = name.removeprefix("eval/"), [x.values.get(name) for x in results]
        is_above = label in of_episodes or label.startswith(("mean_episode", "num_"))
        if not is_above and any(values):
            rows.append([label, *("-" if x is None else f"{x:.4g}" for x in values)])
    said = "Means and, in brackets, their 95% intervals. What is 0 for all is left out."
    return f"{columns(rows)}\n\n{said}"


def _interval(estimate: Estimate, is_share: bool) -> str:
    if is_share:
        low, high = 100 * estimate.low, 100 * estimate.high
        return f"{100 * estimate.mean:.1f}% [{low:.1f}, {high:.1f}]"
    return f"{estimate.mean:.4g} [{estimate.low:.4g}, {estimate.high:.4g}]"
