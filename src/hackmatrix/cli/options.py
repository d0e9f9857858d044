"""What the commands' options have in common."""

import argparse
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hackmatrix.play.agents import POLICIES, Agent, load_agent, named_agent
from ppo_mask.checkpoints import LATEST, write_whole
from ppo_mask.errors import RunError

Run = Callable[[argparse.Namespace], int]


def add_command(
    commands: Any, name: str, run: Run, help: str, *, needs_device: bool = True
) -> argparse.ArgumentParser:
    """A command and what it does, and whether JAX is started for it."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help, description=f"{help[0].upper()}{help[1:]}.", allow_abbrev=False
    )
    parser.set_defaults(run=run, needs_device=needs_device)
    return parser


def add_players(parser: argparse.ArgumentParser, *, several: bool) -> None:
    """The options that say who plays."""
    parser.add_argument(
        "players",
        nargs="*" if several else "?",
        default=[] if several else None,
        metavar="RUN",
        help="a run's folder or a checkpoint in it, or a URL of one",
    )
    add_latest(parser)
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
        help="draw a network's actions from its probabilities instead of taking the likeliest",
    )


def add_latest(parser: argparse.ArgumentParser) -> None:
    """The options for the newest run."""
    parser.add_argument("--latest", action="store_true", help="the newest run there is")
    add_folder(parser)


def add_folder(parser: argparse.ArgumentParser) -> None:
    """The option that says where the newest run is looked for."""
    parser.add_argument(
        "--checkpoint-dir",
        default="checkpoints",
        metavar="FOLDER",
        help="where the newest run is looked for (default: checkpoints)",
    )


def add_game(parser: argparse.ArgumentParser) -> None:
    """The options of a game."""
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the first game (default: 0)"
    )
    parser.add_argument(
        "--reveal", action="store_true", help="show what the player cannot see, too"
    )


def add_limit(parser: argparse.ArgumentParser) -> None:
    """The option that says how long a game may be."""
    parser.add_argument(
        "--max-steps",
        type=number(1),
        default=1000,
        metavar="N",
        help="actions after which a game is cut off (default: 1000)",
    )


def number(at_least: int) -> Callable[[str], int]:
    """A type for argparse: a whole number, not under a limit."""

    def convert(text: str) -> int:
        if not text.lstrip("-").isdecimal() or int(text) < at_least:
            raise argparse.ArgumentTypeError(f"must be a whole number from {at_least}, got {text}")
        return int(text)

    return convert


def agents(options: argparse.Namespace) -> list[Agent]:
    """Who is to play, in the order of the command line.

    Raises:
        RunError: nobody is, or one of them is not to be found.
    """
    players: Any = options.players
    paths: list[str] = players if isinstance(players, list) else [players] * (players is not None)
    names: Any = options.policy
    scripts: list[str] = names if isinstance(names, list) else [names] * (names is not None)
    paths = [*paths, *[LATEST] * options.latest]
    found = [load_agent(path, options.checkpoint_dir, sample=options.sample) for path in paths]
    found += [named_agent(name) for name in scripts]
    if not found:
        raise RunError(f"say who plays: a run, --latest, or --policy {'|'.join(POLICIES)}")
    return found


def add_force(parser: argparse.ArgumentParser) -> None:
    """The option that lets files be replaced."""
    parser.add_argument(
        "-f", "--force", action="store_true", help="replace files that exist already"
    )


def refuse_existing(paths: Iterable[str], force: bool) -> None:
    """Says, before the work is done, that its result could not be written.

    Raises:
        RunError: a file exists already, and ``force`` does not allow to replace it.
    """
    for path in paths:
        if Path(path).exists() and not force:
            raise _existing(path)


def write(path: str, content: bytes, force: bool) -> None:
    """Writes a file and says so.

    Raises:
        RunError: it cannot be written; or it exists already, and ``force`` is not set.
    """
    try:
        if force and Path(path).is_file():
            write_whole(Path(path), content)
        else:
            # The mode x refuses what has come into being since it was looked for.
            with Path(path).open("wb" if force else "xb") as file:
                file.write(content)
    except FileExistsError as error:
        raise _existing(path) from error
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}") from error
    tell(f"wrote {path} ({len(content) / 1000:,.0f} kB)")


def _existing(path: str) -> RunError:
    return RunError(f"{path} exists already; nothing was written (--force replaces it)")


def tell(message: str) -> None:
    """Something about the work, which is no part of the output."""
    print(message, file=sys.stderr, flush=True)
