"""A command line made from a config: grouped help with defaults, errors of one line."""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from ppo_mask.errors import RunError
from ppo_mask.runner._schema import Setting, did_you_mean, settings
from ppo_mask.runner._types import is_many, metavar, written


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise RunError(message)


def parse_flags(
    config: Any,
    arguments: Sequence[str] | None,
    description: str,
    prog: str | None = None,
    epilog: str = "",
) -> dict[str, Any]:
    """Reads the settings that a command line gives. ``--help`` prints and exits.

    Args:
        config: names the settings and, in ``--help``, their defaults.
        arguments: the words after the program's name; None for the process's own.
        description: what the program does, for ``--help``.
        prog: what the program is called there; None for its file's name.
        epilog: what ``--help`` ends with, line by line.

    Returns:
        What was given, and nothing else, by name and mostly as text: :func:`replace` converts it
        where it is laid over defaults, a file or an earlier run.

    Raises:
        RunError: an unknown flag, or one without its value.
    """
    known = settings(config)
    flags = {each.flag: each for each in known.values()}
    parser = _parser(config, known, description, prog, epilog)
    given, unknown = parser.parse_known_args(arguments)
    values: dict[str, Any] = vars(given)
    for word in unknown:
        name = word.partition("=")[0]
        kind = "flag" if name.startswith("-") else "argument"
        raise RunError(f"unknown {kind} {name}{did_you_mean(name, flags)}")
    # Values side by side are as good as with commas.
    return {
        name: ",".join(word.strip(",") for word in x) if isinstance(x, list) else x
        for name, x in values.items()
    }


def _parser(
    config: Any, known: dict[str, Setting], description: str, prog: str | None, epilog: str
) -> _Parser:
    parser = _Parser(
        prog=prog,
        usage="%(prog)s [flags]",
        description=description,
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {}
    for each in known.values():
        if each.group not in groups:
            about = (type(getattr(config, each.group)).__doc__ or "").partition("\n")[0]
            groups[each.group] = parser.add_argument_group(each.group, about)
        text = f"{each.rules.help} (default: {written(each.value)})".replace("%", "%%")
        options: dict[str, Any] = {"dest": each.name, "help": text}
        if each.type is bool:
            options |= {"action": argparse.BooleanOptionalAction}
        else:
            options |= {"metavar": "|".join(each.choices) or metavar(each.type)}
            if is_many(each.type):
                options |= {"nargs": "*"}
            elif each.bare is not None:
                options |= {"nargs": "?", "const": str(each.bare)}
        try:
            groups[each.group].add_argument(each.flag, **options)
        except argparse.ArgumentError as error:
            raise RunError(f"no setting can be called {each.name}: {error}") from error
    return parser
