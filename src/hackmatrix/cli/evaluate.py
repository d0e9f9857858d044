"""``evaluate``: measures how well policies play, and shows the results side by side."""

import argparse
import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from hackmatrix.cli.options import add_limit, add_players, agents
from hackmatrix.play.evaluation import Estimate, Evaluation, measure
from ppo_mask.runner.commands import add_command, add_seed, columns, number, tell, to_json

_BAR = 10


def add_to(commands: Any) -> None:
    """Adds the command to the command line."""
    parser = add_command(commands, "evaluate", _run, "play many games and print statistics")
    add_players(parser, several=True)
    parser.add_argument(
        "--episodes", type=number(1), default=1000, metavar="N", help="games (default: 1000)"
    )
    add_seed(parser)
    add_limit(parser)
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _run(options: argparse.Namespace) -> int:
    results: list[Evaluation] = []
    for agent in agents(options):
        tell(f"{options.episodes:,} games by {agent.name} ...")
        results.append(measure(agent, options.seed, options.episodes, options.max_steps))
    if options.json:
        print(to_json([dataclasses.asdict(result) for result in results]))
    else:
        print(table(results))
    return 0


def table(results: Sequence[Evaluation]) -> str:
    """Formats the results as a table of text with one column for each policy."""
    rows: list[list[str]] = [["", *(result.name for result in results)]]

    def add(name: str, cell: Callable[[Evaluation], str]) -> None:
        rows.append([name, *(cell(result) for result in results)])

    add("games", lambda result: f"{result.episodes:,}")
    for name in ("return", "stage", "score", "length"):
        add(name, lambda result, name=name: _with_interval(result.estimates[name]))
    add("won", lambda result: _share(result.win_rate))
    add("cut off", lambda result: f"{result.cut_off:,}")
    rows.append([])
    for stage in range(len(results[0].stages)):
        add(f"ended in stage {stage + 1}", lambda r, stage=stage: _bar(r.stages[stage], r.episodes))
    rows.append([])
    used = [name for name in results[0].actions if any(r.actions[name] for r in results)]
    for name in used:
        add(f"{name} a game", lambda result, name=name: f"{result.actions[name]:.2f}")
    return f"{columns(rows)}\n\nMeans and, in brackets, their 95% intervals."


def _with_interval(estimate: Estimate) -> str:
    return f"{estimate.mean:.2f} [{estimate.low:.2f}, {estimate.high:.2f}]"


def _share(estimate: Estimate) -> str:
    low, high = 100 * estimate.low, 100 * estimate.high
    return f"{100 * estimate.mean:.1f}% [{low:.1f}, {high:.1f}]"


def _bar(count: int, number: int) -> str:
    share = count / number
    return f"{100 * share:5.1f}% " + "█" * round(_BAR * share)
