"""Options that several commands share, and how commands run."""

import argparse
import io
import json
import os
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import jax

from ppo_mask.checkpoints import RunDir
from ppo_mask.checkpoints._files import write_whole
from ppo_mask.checkpoints._runs import expand_user, find_run
from ppo_mask.devices.platforms import require_platform
from ppo_mask.errors import RunError, describe_error
from ppo_mask.runner._settings import MAX_SEED
from ppo_mask.training._rules import MAX_COUNT

Run = Callable[[argparse.Namespace], int]
Number = TypeVar("Number", int, float)


def run_commands(
    parser: argparse.ArgumentParser, words: list[str], start: Callable[[], None]
) -> int:
    """Runs a command from a command line, or prints the library's version for ``--version``.

    Args:
        parser: the parser with all commands, which come from :func:`add_command`.
        words: the command and its options.
        start: called before a command that needs JAX's devices.

    Returns:
        The exit code: 0, or 2 with one line on standard error, or 130 after Ctrl+C.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Prints a question mark for a character that the terminal's encoding lacks.
        sys.stdout.reconfigure(errors="replace")
    parser.add_argument("--version", action="version", version=f"ppo-mask {version('ppo-mask')}")
    try:
        options = parser.parse_args(words)
        if options.needs_device:
            require_platform()
            start()
        code = options.call(options)
        print(end="", flush=True)
        return code
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except BrokenPipeError:  # The reader of the output has closed it, as `head` does.
        _flush_or_drop()
        return 128 + signal.SIGPIPE
    except (RunError, OSError, jax.errors.JaxRuntimeError) as error:  # JAX's: out of memory.
        _flush_or_drop()
        print(f"error: {describe_error(error)}", file=sys.stderr)
        return 2


def _flush_or_drop() -> None:
    """Flushes standard output; after a failure, keeps Python from trying again at exit."""
    try:
        print(end="", flush=True)
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def add_command(
    commands: Any, name: str, run: Run, help: str, *, needs_device: bool = True
) -> argparse.ArgumentParser:
    """Adds a command; ``needs_device`` says whether the command needs JAX's devices."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=help.replace("%", "%%"), description=f"{help[0].upper()}{help[1:]}."
    )
    parser.set_defaults(call=run, needs_device=needs_device)
    return parser


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Adds the option for the folder to search for runs."""
    parser.add_argument(
        "--checkpoint-dir",
        type=expand_user,
        default="checkpoints",
        metavar="FOLDER",
        help="the folder or URL to search for runs (default: checkpoints)",
    )


def run_folders(places: Sequence[str], parent: str) -> list[RunDir]:
    """Finds runs, which may have no checkpoint; see :func:`find_run`."""
    return [
        RunDir(expand_user(place))
        if os.path.isdir(os.path.expanduser(place))
        else find_run(place, parent)[0]
        for place in places
    ]


def add_files(parser: argparse.ArgumentParser) -> None:
    """Adds the options that write an episode to files, and set its speed."""
    parser.add_argument(
        "--html", type=expand_user, metavar="FILE", help="write a page with the episode instead"
    )
    parser.add_argument(
        "--gif", type=expand_user, metavar="FILE", help="write a GIF of the episode instead"
    )
    parser.add_argument(
        "--fps",
        type=number(0.1, 1000, float),
        default=4.0,
        metavar="F",
        help="actions per second (default: 4)",
    )
    add_force(parser)


def add_seed(parser: argparse.ArgumentParser, what: str = "") -> None:
    """Adds the option for a seed; ``what`` is the help text."""
    help = f"{what} (default: 0)".lstrip()
    parser.add_argument("--seed", type=number(0, MAX_SEED), default=0, metavar="N", help=help)


def number(
    at_least: float, at_most: float = MAX_COUNT, kind: type[Number] = int
) -> Callable[[str], Number]:
    """Makes a type for argparse: a number within limits, by default a whole one."""

    def convert(text: str) -> Number:
        with suppress(ValueError):
            if at_least <= (value := kind(text)) <= at_most:
                return value
        what = "a whole number" if kind is int else "a number"
        raise argparse.ArgumentTypeError(f"must be {what} from {at_least} to {at_most}, got {text}")

    return convert


def add_force(parser: argparse.ArgumentParser) -> None:
    """Adds the option that allows a command to replace files."""
    parser.add_argument(
        "-f", "--force", action="store_true", help="replace files that exist already"
    )


def refuse_existing(paths: Iterable[str], force: bool) -> None:
    """Raises an error before any work if the output files exist already.

    Raises:
        RunError: a file exists already, and ``force`` is not set; or it is a folder or a device.
    """
    for path in paths:
        if Path(path).exists() and not force:
            raise RunError(f"{path} exists already; nothing was written (--force replaces it)")
        if Path(path).exists() and not Path(path).is_file():
            raise RunError(f"{path} is not a file that can be replaced; nothing was written")


def write(path: str, content: str | bytes, force: bool) -> None:
    """Writes a file, and prints the file's name. What is no text in a text becomes "?".

    Raises:
        RunError: the file cannot be written; or the file exists already, and ``force`` is not set.
    """
    refuse_existing([path], force)
    if isinstance(content, str):
        content = content.encode()
    write_whole(Path(path), content)
    tell(f"wrote {path} ({len(content) / 1000:,.0f} kB)")


def to_json(content: Any) -> str:
    """Formats JSON, with null for NaN and infinity, which JSON does not have."""
    finite = json.loads(json.dumps(content), parse_constant=lambda _: None)
    return json.dumps(finite, indent=2)


def tell(message: str) -> None:
    """Prints a message on standard error, separate from the command's output."""
    print(message, file=sys.stderr, flush=True)


def columns(rows: Iterable[Sequence[str]]) -> str:
    """Formats rows of words as aligned columns; an empty row is an empty line."""
    rows = [list(row) for row in rows]
    count = max(len(row) for row in rows)
    widths = [
        max((len(row[n]) for row in rows if len(row) == count), default=0) for n in range(count)
    ]
    lines = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    )
    return "\n".join(lines)
