"""Reads settings from flags, YAML files and stored runs.

Each reader converts and checks values, and returns a dictionary of values by name; :func:`merge`
puts the values into a config.
"""

import argparse
import dataclasses
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar, cast

from ppo_mask.errors import FieldError, RunError
from ppo_mask.runner._schema import did_you_mean, flag_for, load_yaml, settings

Config = TypeVar("Config")


def merge(config: Config, values: Mapping[str, Any]) -> Config:
    """Replaces values of a config with the values that a reader returned.

    Raises:
        RunError: the values contradict each other.
    """
    by_group: dict[str, dict[str, Any]] = {}
    for name, each in settings(config).items():
        if name in values:
            by_group.setdefault(each.group, {})[name] = values[name]
    try:
        changed = {
            group: dataclasses.replace(getattr(config, group), **of_group)
            for group, of_group in by_group.items()
        }
    except ValueError as error:
        raise as_run_error(error) from error
    return dataclasses.replace(cast(Any, config), **changed)


def as_run_error(error: ValueError) -> RunError:
    """Converts an error about a field to a RunError that names the field's flag."""
    if isinstance(error, FieldError):
        return RunError(f"{flag_for(error.field)} {error.problem}")
    return RunError(str(error))


def read_values(config: Any, content: object, source: str) -> dict[str, Any]:
    """Reads settings from the content of a YAML or JSON file.

    Settings may be flat or in groups; their names may have dashes or underscores.

    Args:
        config: any config of the program, which defines the settings.
        content: plain values by name.
        source: the file's name, for errors.

    Raises:
        RunError: a setting is unknown or given twice, or a value is not allowed.
    """
    known = settings(config)
    names = {x: each for each in known.values() for x in (each.name, each.rules.alias) if x}
    groups = {field.name for field in dataclasses.fields(config)}
    values: dict[str, Any] = {}

    def collect(content: object, where: str, groups: set[str]) -> None:
        if not isinstance(content, Mapping):
            raise RunError(f"{where} must hold 'name: value' lines, got {content!r}")
        for key, value in cast(Mapping[Any, Any], content).items():
            name = str(key).replace("-", "_")
            # If a setting and a group share a name, a mapping is the group.
            if name in groups and (name not in names or isinstance(value, Mapping)):
                collect(value, f"{where}, group {name}", set())
            elif name not in names:
                raise RunError(f"{source}: unknown setting {name}{did_you_mean(name, known)}")
            elif names[name].name in values:
                raise RunError(f"{where} gives {names[name].name} twice")
            else:
                values[names[name].name] = names[name].convert(value, f"{source}: {name}")

    collect(content, source, groups)
    return values


def read_yaml(path: Path, config: Any) -> dict[str, Any]:
    """Reads settings from a YAML file; see :func:`read_values`."""
    content = load_yaml(path)
    return read_values(config, {} if content is None else content, str(path))


class CommandParser(argparse.ArgumentParser):
    """A parser that raises usage errors as a ``RunError`` instead of exiting."""

    def __init__(self, **options: Any) -> None:
        super().__init__(allow_abbrev=False, **options)
        # Python's own takes -1e-3 and -inf for flags.
        self._negative_number_matcher = re.compile(r"-(\.?\d|(inf|infinity|nan)\b)", re.IGNORECASE)

    def error(self, message: str) -> NoReturn:
        """Raises a ``RunError``."""
        raise RunError(f"{message}; {self.prog} --help shows what there is")


def parse_flags(
    config: Any,
    arguments: Sequence[str] | None,
    description: str,
    prog: str | None = None,
    epilog: str = "",
) -> dict[str, Any]:
    """Reads settings from a command line. ``--help`` prints all settings and exits.

    Args:
        config: the program's defaults, which also define the settings.
        arguments: the words after the program's name; None for ``sys.argv``.
        description: what the program does, for ``--help``.
        prog: the program's name, for ``--help``; None for the name of the program's file.
        epilog: the last lines of ``--help``.

    Raises:
        RunError: a flag is unknown, or a value is not allowed.
    """
    parser = CommandParser(
        prog=prog,
        usage="%(prog)s [flags]",
        description=description,
        epilog=epilog or None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        argument_default=argparse.SUPPRESS,
    )
    known, groups = settings(config), dict[str, Any]()
    for name, each in known.items():
        if each.group not in groups:
            about = (type(getattr(config, each.group)).__doc__ or "").partition("\n")[0]
            groups[each.group] = parser.add_argument_group(each.group, about)
        options: dict[str, Any] = {"metavar": "|".join(each.choices) or each.kind.metavar}
        if each.is_switch:
            options = {"action": argparse.BooleanOptionalAction}
        elif each.kind.collection:
            options["nargs"] = "*"
        elif each.rules.bare is not None:
            options |= {"nargs": "?", "const": str(each.rules.bare)}
        help = f"{each.rules.help} (default: {each.default})".replace("%", "%%")
        groups[each.group].add_argument(*each.flags, dest=name, help=help, **options)
    given, unknown = parser.parse_known_args(arguments)
    for word in unknown:
        name = word.partition("=")[0]
        flags = [flag for each in known.values() for flag in each.flags]
        what = "flag" if name.startswith("-") else "argument"
        is_truth = name.lower() in ("true", "false")
        hint = "; write --NAME or --no-NAME alone" if is_truth else did_you_mean(name, flags)
        raise RunError(f"unknown {what} {name}{hint}")
    values: dict[str, Any] = vars(given)
    for name, raw in values.items():
        if isinstance(raw, list):  # Spaces may separate values, as well as commas.
            raw = ",".join(word.strip(",") for word in cast(list[str], raw))
        values[name] = known[name].convert(raw, flag_for(name))
    return values
