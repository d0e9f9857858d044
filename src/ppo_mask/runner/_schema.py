"""Defines settings: fields of dataclasses, with their types, defaults, help and limits.

A *config* is a dataclass of *groups*. A group is a frozen dataclass, or an algorithm, whose fields
have :class:`ppo_mask.training.Rules`. A setting's default, help and limits are stated once, by the
field and its rules.
"""

import dataclasses
import difflib
import functools
import math
import types
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Union, cast

import yaml

from ppo_mask.checkpoints._runs import expand_user
from ppo_mask.errors import RunError
from ppo_mask.jax_tools._trees import python_scalar
from ppo_mask.training import Rules
from ppo_mask.training._rules import RULES


class Structured(ABC):
    """A type of setting with structure, such as a list of phases.

    The setting's flag names a YAML file. A ``--config`` file, or the ``config.yaml`` of a run, may
    contain the structure itself.
    """

    @classmethod
    def from_text(cls, text: str) -> "Structured":
        """Makes the structure from a flag's value: the name of a YAML file.

        Raises:
            RunError: there is no such file, or the content does not fit.
        """
        return cls.from_plain(load_yaml(Path(text)), text)

    @classmethod
    @abstractmethod
    def from_plain(cls, plain: object, called: str) -> "Structured":
        """Makes the structure from the content of a YAML file.

        Args:
            plain: lists, dictionaries and plain values.
            called: the setting's name, for errors.

        Raises:
            RunError: the content does not fit; the message is one line that begins with ``called``.
        """

    @abstractmethod
    def to_plain(self) -> Any:
        """Converts the structure to lists, dictionaries with keys of text, and plain values."""


def setting(default: Any, help: str, **rules: Any) -> Any:
    """Declares one setting: a dataclass field of one of the types below, or ``… | None``.

    The types are int, float, bool, str, Path, any Literal, ``tuple[…, ...]`` of these, and
    subclasses of :class:`Structured`. On the command line, spaces or commas separate the values of
    a tuple.

    Args:
        default: the default value.
        help: one line for ``--help``.
        rules: fields of :class:`ppo_mask.training.Rules`.
    """
    return dataclasses.field(default=default, metadata={RULES: Rules(help, **rules)})


def plain(value: Any) -> Any:
    """Converts a value to plain values, lists and dictionaries for YAML and JSON."""
    if isinstance(value, tuple):
        return [plain(each) for each in cast(Sequence[Any], value)]
    if isinstance(value, Structured):
        return value.to_plain()
    return str(value) if isinstance(value, Path) else python_scalar(value)


def written(value: Any) -> str:
    """Formats a value as text, in the form that a flag accepts."""
    if isinstance(value, tuple):
        return ",".join(map(written, cast(Sequence[Any], value))) or "nothing"
    text = str(plain(value))
    return text.lower() if value is None or isinstance(value, bool) else text


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A type of settings, with a function that reads values of this type."""

    metavar: str
    wanted: str
    read: Callable[[Any], Any]  # Raises TypeError, ValueError, KeyError or OverflowError.
    choices: tuple[str, ...] = ()
    collection: bool = False
    structured: type[Structured] | None = None


def _refusing(refused: Any, convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def read(raw: Any) -> Any:
        value = convert(raw)
        if isinstance(raw, refused) or (not isinstance(raw, str) and value != raw):
            raise TypeError
        return value

    return read


def _one_of(values: Iterable[Any]) -> _Kind:
    by_text = {written(value): value for value in values}
    wanted = " or ".join(by_text)
    return _Kind("|".join(by_text), wanted, lambda raw: by_text[written(raw)], tuple(by_text))


_SIMPLE: dict[Any, _Kind] = {
    int: _Kind("N", "a whole number", _refusing(bool, int)),
    float: _Kind("X", "a number", _refusing(bool, float)),
    str: _Kind("TEXT", "text", _refusing((), str)),
    Path: _Kind("PATH", "a path", lambda raw: Path(expand_user(str(Path(raw))))),
    bool: _one_of((True, False)),
}


def _kind(hint: Any) -> _Kind | None:
    """Finds the kind for a type without ``| None``; None if flags do not support the type."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple and arguments[1:] == (...,):
        each = _kind(arguments[0])
        if each is None or each.collection or each.structured:
            return None

        def read(raw: Any) -> Any:
            if isinstance(raw, str):
                raw = [word.strip() for word in raw.split(",")] if raw.strip() else []
            if not isinstance(raw, (list, tuple)):
                raise TypeError
            return tuple(map(each.read, cast(Sequence[Any], raw)))

        wanted = f"values with commas between them, each {each.wanted}"
        return _Kind(each.metavar, wanted, read, each.choices, collection=True)
    if isinstance(hint, type) and issubclass(hint, Structured):
        return _Kind("FILE", "a YAML file", hint.from_text, structured=hint)
    return _SIMPLE.get(hint)


class Setting(NamedTuple):  # A dataclass of ours checks types whenever it is made: 1,000 times.
    """One setting of a config.

    Attributes:
        name: the name of the field, also used in YAML; unique in the whole config.
        group: the name of the config's field that holds the setting's group.
        value: the setting's value in the config; in a program's defaults, the default.
        optional: whether None is allowed; flags and YAML may write ``none``.
        rules: help, limits, alias, and everything else from the declaration.
        choices: the allowed values, as text; empty if there is no list of values.
        kind: how to read a value of the setting's type.
    """

    name: str
    group: str
    value: Any
    optional: bool
    rules: Rules
    choices: tuple[str, ...]
    kind: _Kind

    @property
    def flags(self) -> tuple[str, ...]:
        """The setting's flags on the command line: the flag of its name, then of its alias."""
        return tuple(flag_for(name) for name in (self.name, self.rules.alias) if name)

    @property
    def is_switch(self) -> bool:
        """Whether the flag takes no value, and has a negation ``--no-…``."""
        return self.kind is _SIMPLE[bool]

    @property
    def type(self) -> str:
        """Describes the allowed values in words, such as "a whole number or none"."""
        return (" or ".join(self.choices) or self.kind.wanted) + " or none" * self.optional

    @property
    def default(self) -> str:
        """The value as text, in the form that the flag accepts."""
        return written(self.value)

    def convert(self, raw: object, called: str) -> Any:
        """Converts a plain value, or text, to the setting's type, and checks the limits.

        Args:
            raw: a value from a flag, YAML or Python.
            called: the setting's name, for errors.

        Raises:
            RunError: the value is not allowed; the message is one line that begins with ``called``.
        """
        raw = python_scalar(raw)
        if self.optional and (raw is None or (isinstance(raw, str) and raw.lower() == "none")):
            return None
        structured = self.kind.structured
        if structured is not None and not isinstance(raw, str):
            return raw if isinstance(raw, structured) else structured.from_plain(raw, called)
        try:
            value = self.kind.read(raw)
        except (TypeError, ValueError, KeyError, OverflowError):
            raise RunError(f"{called} must be {self.kind.wanted}, got {plain(raw)!r}") from None
        for each in value if self.kind.collection else [value]:
            if self.choices and written(each) not in self.choices:
                raise RunError(f"{called} must be {' or '.join(self.choices)}, got {raw!r}")
            is_number = isinstance(each, (int, float)) and not isinstance(each, bool)
            if is_number and (wanted := self.rules.violation(each)):
                raise RunError(f"{called} must be {wanted}, got {raw}")
        return value


def settings(config: Any) -> dict[str, Setting]:
    """Lists all settings of a config by name, in the order of ``--help``.

    Raises:
        RunError: two settings have the same name, or flags do not support a setting's type.
    """
    found: dict[str, Setting] = {}
    for group in dataclasses.fields(config):
        values = getattr(config, group.name)
        for name, (kind, optional, rules) in _declared(type(values)).items():
            if name in found:
                raise RunError(f"two groups have a setting {name!r}")
            one_of = rules.one_of
            choices = getattr(values, one_of) if isinstance(one_of, str) else one_of
            value, choices = getattr(values, name), choices or kind.choices
            found[name] = Setting(name, group.name, value, optional, rules, choices, kind)
    return found


@functools.cache  # Every start of a program calls this function about ten times.
def _declared(group: type) -> dict[str, tuple[_Kind, bool, Rules]]:
    """Finds the kind of each setting in a group, whether None is allowed, and the rules."""
    found: dict[str, tuple[_Kind, bool, Rules]] = {}
    hints = typing.get_type_hints(group)
    for field in (field for field in dataclasses.fields(group) if RULES in field.metadata):
        hint = hints[field.name]
        is_union = typing.get_origin(hint) in (Union, types.UnionType)
        arms = typing.get_args(hint) if is_union else (hint,)
        # Flags cannot express some members of a union, such as schedules of the learning rate.
        kinds = [kind for kind in map(_kind, arms) if kind is not None]
        if len(kinds) != 1:
            raise RunError(
                f"{field.name} has type {hint}, which no flag can have; there are int, float, "
                "bool, str, Path, literals, tuple[..., ...] and ... | None"
            )
        found[field.name] = kinds[0], types.NoneType in arms, field.metadata[RULES]
    return found


def as_dict(config: Any) -> dict[str, dict[str, Any]]:
    """Returns, as plain values, all settings that a run stores, by group and name."""
    nested: dict[str, dict[str, Any]] = {}
    for each in settings(config).values():
        if each.rules.stored:
            nested.setdefault(each.group, {})[each.name] = plain(each.value)
    return nested


def flag_for(name: str) -> str:
    """Returns the flag of a setting."""
    return "--" + name.replace("_", "-")


class _Loader(yaml.SafeLoader):
    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.MarkedYAMLError(None, None, f"{key} is given twice", node.start_mark)
        return super().construct_mapping(node, deep)


def load_yaml(path: Path) -> Any:
    """Reads a YAML file.

    Raises:
        RunError: the file cannot be read, or has a key twice.
    """
    try:
        with open(expand_user(str(path)), encoding="utf-8") as file:
            return yaml.load(file, _Loader)
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:  # Such as an impossible date.
        raise RunError(f"{path} is not valid YAML: {error}") from error


def finite_number(raw: object, called: str) -> float:
    """Converts a plain value, or text, to a finite number.

    Raises:
        RunError: ``raw`` is not a finite number; the message begins with ``called``.
    """
    try:
        value = _SIMPLE[float].read(raw)
    except (TypeError, ValueError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise RunError(f"{called} must be a finite number, got {raw!r}")
    return value


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Returns a hint for a misspelled name, or an empty string."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""
