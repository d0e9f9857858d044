"""Settings as frozen dataclasses, and values laid over them from files and flags.

A *config* is a dataclass whose fields are *groups*; a group is a frozen dataclass whose fields are
made by :func:`setting`. That is the single place where a setting's default, help, limits and type
are written down: the command line, ``--help``, the YAML files and every error come from it.
Values are laid over each other with :func:`replace`: defaults, then a file, then flags.
"""

import dataclasses
import difflib
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml

from ppo_mask.errors import RunError

Config = TypeVar("Config")

_METADATA_KEY = "ppo_mask.setting"
_TYPE_NAMES = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}


class Structured(ABC):
    """A setting's type of more than one value: a flag names a YAML file that holds it.

    In a ``--config`` file it may also stand itself, as it does in the run's own: going on with a
    run needs no other file.
    """

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: object, called: str) -> "Structured":
        """From what YAML holds.

        Raises:
            RunError: it cannot be; the message names the setting as ``called``.
        """

    @abstractmethod
    def to_plain(self) -> Any:
        """Lists, dictionaries with text as keys, and plain values."""


@dataclasses.dataclass(frozen=True)
class Rules:
    """What a setting is declared with; see :func:`setting`."""

    help: str
    at_least: int | float | None
    above: int | float | None
    at_most: int | float | None
    one_of: tuple[str, ...] | str | None
    changeable: bool
    bare: int | float | None


def setting(
    default: Any,
    help: str,
    *,
    at_least: int | float | None = None,
    above: int | float | None = None,
    at_most: int | float | None = None,
    one_of: tuple[str, ...] | str | None = None,
    changeable: bool = False,
    bare: int | float | None = None,
) -> Any:
    """Declares one setting: a dataclass field of one of the types below, or ``… | None``.

    The types are int, float, bool, str and those made from :class:`Structured`.

    Args:
        default: the value where nothing else is given.
        help: one line for ``--help``.
        at_least: smallest value allowed.
        above: the value must be greater than this.
        at_most: largest value allowed.
        one_of: the values allowed, for text; or the name of the group's attribute that holds them,
            where a program decides. An empty one allows any.
        changeable: whether a resumed run may have another value than it began with.
        bare: what the flag means without a value; None if it needs one.
    """
    rules = Rules(help, at_least, above, at_most, one_of, changeable, bare)
    return dataclasses.field(default=default, metadata={_METADATA_KEY: rules})


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a config, as the command line and the YAML reader see it.

    Attributes:
        name: the field's name, unique in the whole config.
        group: the field of the config that holds its group.
        type: int, float, bool, str or a :class:`Structured` one.
        optional: whether None is a value.
        value: its value in the config at hand.
        rules: what it was declared with.
        choices: the values allowed, for text; empty if any is.
    """

    name: str
    group: str
    type: type
    optional: bool
    value: Any
    rules: Rules
    choices: tuple[str, ...] = ()

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return "--" + self.name.replace("_", "-")

    def convert(self, raw: object, called: str) -> Any:
        """A value as it came from a flag or a file, in the setting's type and within its limits.

        Raises:
            RunError: it is neither; the message names the setting as ``called``.
        """
        value = self._typed(raw, called)
        if isinstance(value, Structured):
            return value
        if self.choices and value is not None and value not in self.choices:
            raise RunError(f"{called} must be {' or '.join(self.choices)}, got {raw!r}")
        if value is None or isinstance(value, (bool, str)):
            return value
        rules = self.rules
        wanted = ""
        if not math.isfinite(value):
            wanted = "a finite number"
        elif rules.at_least is not None and value < rules.at_least:
            wanted = f"at least {rules.at_least}"
        elif rules.above is not None and value <= rules.above:
            wanted = f"more than {rules.above}"
        elif rules.at_most is not None and value > rules.at_most:
            wanted = f"at most {rules.at_most}"
        if wanted:
            raise RunError(f"{called} must be {wanted}, got {raw}")
        return value

    def _typed(self, raw: object, called: str) -> Any:
        if self.optional and (raw is None or (isinstance(raw, str) and raw.lower() == "none")):
            return None
        if issubclass(self.type, Structured):
            if isinstance(raw, self.type):
                return raw
            if isinstance(raw, str):
                return self.type.from_plain(load_yaml(Path(raw)), raw)
            return self.type.from_plain(raw, called)
        number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
        try:
            if self.type in (bool, str):
                if isinstance(raw, self.type):
                    return raw
            # YAML takes 1e-4 for text, so text is always worth a try.
            elif isinstance(raw, str) or (number and self.type(raw) == raw):
                return self.type(raw)
        except (ValueError, OverflowError):
            pass
        raise RunError(f"{called} must be {_TYPE_NAMES[self.type]}, got {raw!r}")


def settings(config: Any) -> dict[str, Setting]:
    """All settings of a config by name.

    Raises:
        TypeError: two groups have a setting of one name, or one has a type that no flag can have.
    """
    found: dict[str, Setting] = {}
    for each in _walk(config):
        if each.name in found:
            raise TypeError(f"two groups have a setting {each.name!r}")
        found[each.name] = each
    return found


def _walk(config: Any) -> Iterator[Setting]:
    for group_field in dataclasses.fields(config):
        group = getattr(config, group_field.name)
        hints = typing.get_type_hints(type(group))
        for field in dataclasses.fields(group):
            if _METADATA_KEY not in field.metadata:
                continue
            hint, optional = hints[field.name], False
            if isinstance(hint, types.UnionType):
                hint = next(t for t in hint.__args__ if t is not types.NoneType)
                optional = True
            if hint not in _TYPE_NAMES and not issubclass(hint, Structured):
                raise TypeError(f"{field.name} has type {hint}, which no flag can have")
            value = getattr(group, field.name)
            rules: Rules = field.metadata[_METADATA_KEY]
            choices = rules.one_of or ()
            if isinstance(choices, str):
                choices = getattr(group, choices)
            yield Setting(field.name, group_field.name, hint, optional, value, rules, choices)


def replace(config: Config, values: Mapping[str, Any], source: str = "") -> Config:
    """The config with some settings replaced, each converted and checked.

    Args:
        config: what the values are laid over.
        values: by name; text is converted as on the command line.
        source: the file that they come from, for errors; empty for the command line.

    Raises:
        RunError: an unknown setting, or a value that cannot be.
    """
    known = settings(config)
    by_group: dict[str, dict[str, Any]] = {}
    for name, raw in values.items():
        if name not in known:
            raise RunError(f"{source}: unknown setting {name}{did_you_mean(name, known)}")
        each = known[name]
        called = f"{source}: {name}" if source else each.flag
        by_group.setdefault(each.group, {})[name] = each.convert(raw, called)
    groups = {
        group: dataclasses.replace(getattr(config, group), **changed)
        for group, changed in by_group.items()
    }
    return dataclasses.replace(typing.cast(Any, config), **groups)


def check(config: Any) -> None:
    """Makes sure that every setting has a value of its type and within its limits.

    Raises:
        RunError: naming the first that has not.
    """
    replace(config, {name: each.value for name, each in settings(config).items()})


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelled name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def as_dict(config: Any) -> dict[str, dict[str, Any]]:
    """The settings by group and name: plain values only."""
    nested: dict[str, dict[str, Any]] = {}
    for each in settings(config).values():
        value = each.value.to_plain() if isinstance(each.value, Structured) else each.value
        nested.setdefault(each.group, {})[each.name] = value
    return nested


def read_yaml(path: Path, config: Any) -> dict[str, Any]:
    """The settings in a YAML file, which may be flat or grouped, with dashes or underscores.

    Raises:
        RunError: the file cannot be read, or does not hold settings.
    """
    content = load_yaml(path)
    values: dict[str, Any] = {}
    groups = {field.name for field in dataclasses.fields(config)}
    _collect({} if content is None else content, str(path), groups, set(settings(config)), values)
    return values


def load_yaml(path: Path) -> Any:
    """What a YAML file holds.

    Raises:
        RunError: it cannot be read.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not valid YAML: {error}") from error


def _collect(
    content: Any, where: str, groups: set[str], names: set[str], values: dict[str, Any]
) -> None:
    if not isinstance(content, Mapping):
        raise RunError(f"{where} must hold 'name: value' lines, got {content!r}")
    for key, value in typing.cast(Mapping[Any, Any], content).items():
        name = str(key).replace("-", "_")
        # A setting may be called as a group is; then lines of its own make it the group.
        if name in groups and (name not in names or isinstance(value, Mapping)):
            _collect(value, f"{where}, group {name}", set(), names, values)
        elif name in values:
            raise RunError(f"{where} gives {name} twice")
        else:
            values[name] = value
