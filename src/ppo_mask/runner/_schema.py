"""Settings as frozen dataclasses, and values laid over them from files and flags.

A *config* is a dataclass whose fields are *groups*; a group is a frozen dataclass whose fields are
made by :func:`setting`, or have the rules of one of :class:`ppo_mask.ppo.PPOConfig`. That is the
single place where a setting's default, help and limits are written down: the command line,
``--help``, the YAML files and every error come from it. Values are laid over each other with
:func:`replace`, which converts each of them, once: defaults, then a file, then flags.
"""

import dataclasses
import difflib
import functools
import math
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import yaml

from ppo_mask.checkpoints import expand_user
from ppo_mask.errors import RunError
from ppo_mask.ppo import RULES, Rules
from ppo_mask.runner import _types

Config = TypeVar("Config")

_BARE = "ppo_mask.bare"
_IS_PATH = "ppo_mask.is_path"


class Structured(ABC):
    """A setting's type of more than one value: a flag names a YAML file that holds it.

    In a ``--config`` file it may also stand itself, as it does in the run's own: resuming a run
    needs no other file.
    """

    @classmethod
    def from_text(cls, text: str) -> "Structured":
        """From a flag's value, the name of a YAML file.

        Raises:
            RunError: see :meth:`from_plain`; or there is no such file.
        """
        return cls.from_plain(load_yaml(Path(text)), text)

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


def setting(
    default: Any, help: str, *, bare: int | str | None = None, is_path: bool = False, **rules: Any
) -> Any:
    """Declares one setting: a dataclass field of one of the types below, or ``… | None``.

    The types are int, float, bool, str, Path, any Enum and Literal, lists and tuples of these, and
    those made from :class:`Structured`. A flag takes a list's values side by side, or with commas
    between them.

    Args:
        default: the value where nothing else is given.
        help: one line for ``--help``.
        bare: what the flag means without a value; None if it needs one.
        is_path: ``~`` at the beginning of the text is the user's home folder.
        rules: see :class:`ppo_mask.ppo.Rules`.
    """
    metadata = {RULES: Rules(help, **rules), _BARE: bare, _IS_PATH: is_path}
    if isinstance(default, list):
        values = cast(list[Any], default)
        return dataclasses.field(default_factory=lambda: [*values], metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def flag_for(name: str) -> str:
    """The name of a setting on the command line."""
    return "--" + name.replace("_", "-")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One setting of a config, as the command line and the YAML reader see it.

    Attributes:
        name: the field's name, unique in the whole config.
        group: the field of the config that holds its group.
        type: one of those of :func:`setting`, without ``| None``.
        optional: whether None is a value.
        value: its value in the config at hand.
        rules: what it was declared with.
        bare: what the flag means without a value; None if it needs one.
        choices: the values allowed, as they are written; empty if any is.
        is_path: the text is a path, in which ``~`` is the user's home folder.
    """

    name: str
    group: str
    type: Any
    optional: bool
    value: Any
    rules: Rules
    bare: int | str | None
    choices: tuple[str, ...]
    is_path: bool = False

    @property
    def flag(self) -> str:
        """The name on the command line."""
        return flag_for(self.name)

    def convert(self, raw: object, called: str) -> Any:
        """A value as it came from a flag or a file, in the setting's type and within its limits.

        Raises:
            RunError: it is neither; the message names the setting as ``called``.
        """
        value = self._typed(raw, called)
        if value is None or isinstance(value, Structured):
            return value
        for each in cast(Sequence[Any], value) if _types.is_many(self.type) else [value]:
            if self.choices and _types.written(each) not in self.choices:
                raise RunError(f"{called} must be {' or '.join(self.choices)}, got {raw!r}")
            is_number = isinstance(each, (int, float)) and not isinstance(each, bool)
            if is_number and (wanted := self.rules.violation(each)):
                raise RunError(f"{called} must be {wanted}, got {raw}")
        return value

    def _typed(self, raw: object, called: str) -> Any:
        if self.optional and (raw is None or (isinstance(raw, str) and raw.lower() == "none")):
            return None
        if _is_structured(self.type):
            if isinstance(raw, self.type):
                return raw
            if isinstance(raw, str):
                return self.type.from_text(raw)
            return self.type.from_plain(raw, called)
        try:
            value = _types.convert(self.type, raw)
        except (ValueError, OverflowError):
            wanted = _types.describe(self.type)
            raise RunError(f"{called} must be {wanted}, got {_types.plain(raw)!r}") from None
        return expand_user(value) if self.is_path else value


def settings(config: Any) -> dict[str, Setting]:
    """All settings of a config by name.

    Raises:
        TypeError: two groups have a setting of one name, or one has a type that no flag can have.
    """
    found: dict[str, Setting] = {}
    for group_field in dataclasses.fields(config):
        group = getattr(config, group_field.name)
        types = _setting_types(type(group))
        for field in dataclasses.fields(group):
            name = field.name
            if name not in types:
                continue
            if name in found:
                raise TypeError(f"two groups have a setting {name!r}")
            hint, optional = types[name]
            rules: Rules = field.metadata[RULES]
            one_of = rules.one_of
            choices = getattr(group, one_of) if isinstance(one_of, str) else one_of
            found[name] = Setting(
                name,
                group_field.name,
                hint,
                optional,
                getattr(group, name),
                rules,
                field.metadata.get(_BARE),
                choices or tuple(_types.options(hint)),
                field.metadata.get(_IS_PATH, False),
            )
    return found


@functools.cache  # A start asks for them about ten times.
def _setting_types(group: type) -> dict[str, tuple[Any, bool]]:
    """The type of each setting of a group, and whether None is a value.

    Raises:
        TypeError: no flag can have one of them.
    """
    hints, found = _hints(group), dict[str, tuple[Any, bool]]()
    for field in dataclasses.fields(group):
        if RULES not in field.metadata:
            continue
        name = field.name
        hint, _ = found[name] = _types.without_none(hints[name])
        if not _types.has_flag(hint) and not _is_structured(hint):
            shown = hints[name].__name__ if isinstance(hints[name], type) else hints[name]
            raise TypeError(
                f"{name} has type {shown}, which no flag can have; there are {_types.THERE_ARE}"
            )
    return found


def _is_structured(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Structured)


def _hints(group: type) -> dict[str, Any]:
    try:
        return typing.get_type_hints(group)
    except NameError as error:
        fields = dataclasses.fields(group)
        names = [x.name for x in fields if isinstance(x.type, str) and str(error.name) in x.type]
        raise TypeError(
            f"the type of {' or '.join(names)} cannot be found: {error}; it must be at the top of "
            "the module"
        ) from error


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
    return dataclasses.replace(cast(Any, config), **groups)


def check(config: Config) -> Config:
    """Makes sure that every setting has a value of its type and within its limits.

    Returns:
        The config with each value as a file's or a flag's would be: ``~`` is the home folder.

    Raises:
        RunError: naming the first that has not, or the first whose type no flag can have.
    """
    try:
        known = settings(config)
    except TypeError as error:
        raise RunError(str(error)) from error
    return replace(config, {name: each.value for name, each in known.items()})


def finite_number(raw: object, called: str) -> float:
    """A number from what YAML or a flag holds.

    Raises:
        RunError: it is none; the message names it as ``called``.
    """
    if isinstance(raw, (int, float, str)) and not isinstance(raw, bool):
        try:  # YAML takes 1e-4 for text.
            value = float(raw)
        except (ValueError, OverflowError):
            value = math.nan
        if math.isfinite(value):
            return value
    raise RunError(f"{called} must be a finite number, got {raw!r}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelled name, or nothing."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def as_dict(config: Any) -> dict[str, dict[str, Any]]:
    """The settings by group and name: plain values only."""
    nested: dict[str, dict[str, Any]] = {}
    for each in settings(config).values():
        is_structured = isinstance(each.value, Structured)
        value = each.value.to_plain() if is_structured else _types.plain(each.value)
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
        return yaml.safe_load(Path(expand_user(str(path))).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise RunError(f"{path} is not valid YAML: {error}") from error


def _collect(
    content: Any, where: str, groups: set[str], names: set[str], values: dict[str, Any]
) -> None:
    if not isinstance(content, Mapping):
        raise RunError(f"{where} must hold 'name: value' lines, got {content!r}")
    for key, value in cast(Mapping[Any, Any], content).items():
        name = str(key).replace("-", "_")
        # A setting may be called as a group is; then lines of its own make it the group.
        if name in groups and (name not in names or isinstance(value, Mapping)):
            _collect(value, f"{where}, group {name}", set(), names, values)
        elif name in values:
            raise RunError(f"{where} gives {name} twice")
        else:
            values[name] = value
