"""Options that several commands share."""

import argparse
from typing import Any

from hackmatrix.play.agents import POLICIES, Agent, load_agent, named_agent
from ppo_mask.checkpoints import LATEST
from ppo_mask.errors import RunError
from ppo_mask.runner.commands import add_folder, add_seed, number


def add_players(parser: argparse.ArgumentParser, *, several: bool) -> None:
    """Adds the options that say who plays."""
    parser.add_argument(
        "players",
        nargs="*" if several else "?",
        default=[] if several else None,
        metavar="RUN",
        help="a run's folder or a checkpoint in it, a URL of one, or a saved policy",
    )
    parser.add_argument("--latest", action="store_true", help="the newest run there is")
    add_folder(parser)
    parser.add_argument(
        "--policy",
        nargs="+" if several else None,
        default=[] if several else None,
        metavar="NAME",
        help=f"a policy that comes with the package: {', '.join(POLICIES)}",
    )
    parser.add_argument(
        "--sample",
        action="store_true",
        help="sample a network's actions instead of taking the likeliest",
    )


def add_game(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a game."""
    add_seed(parser, "of the first game")
    parser.add_argument(
        "--reveal", action="store_true", help="show what the player cannot see, too"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """Adds the option that says how long a game may be."""
    parser.add_argument(
        "--max-steps",
        type=number(1),
        default=1000,
        metavar="N",
        help="actions after which a game is cut off (default: 1000)",
    )


def agents(options: argparse.Namespace) -> list[Agent]:
    """Loads the policies that play, in the order of the command line.

    Raises:
        RunError: no policy is given, or a policy was not found.
    """
    players: Any = options.players
    paths: list[str] = players if isinstance(players, list) else [players] * (players is not None)
    names: Any = options.policy
    scripts: list[str] = names if isinstance(names, list) else [names] * (names is not None)
    paths = [*paths, *[LATEST] * options.latest]
    found = [load_agent(path, options.checkpoint_dir, sample=options.sample) for path in paths]
    found += [named_agent(name, sample=options.sample) for name in scripts]
    if not found:
        raise RunError(f"say who plays: a run, --latest, or --policy {'|'.join(POLICIES)}")
    return found
