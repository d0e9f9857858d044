"""The types that a setting may have, and how their values are written in flags and files."""

import enum
import types
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, cast

from ppo_mask.checkpoints import expand_user

_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    str: "text",
    Path: "a path",
}
_METAVARS: dict[Any, str] = {int: "N", float: "X", bool: "true|false", str: "TEXT", Path: "PATH"}
THERE_ARE = "int, float, bool, str, Path, enums, literals, lists and tuples of them, and ... | None"


def without_none(hint: Any) -> tuple[Any, bool]:
    """A type without its ``| None``, and whether it had one."""
    origin: Any = typing.get_origin(hint)
    if origin not in (Union, types.UnionType, Literal):
        return hint, False
    arms = typing.get_args(hint)
    others = tuple(arm for arm in arms if arm not in (None, types.NoneType))
    if not others or len(others) == len(arms):
        return hint, False
    return without_none((Literal if origin is Literal else Union)[others])[0], True


def has_flag(hint: Any) -> bool:
    """Whether there is a natural flag for a type."""
    elements, _ = _elements(hint)
    if elements:
        return all(has_flag(each) and not is_many(each) for each in elements)
    if typing.get_origin(hint) is Literal:
        values = typing.get_args(hint)
        return all(type(x) in (int, bool, str) for x in values) and len(options(hint)) == len(
            values
        )
    return hint in _NAMES or bool(options(hint))


def is_many(hint: Any) -> bool:
    """Whether the type's values are lists or tuples."""
    return bool(_elements(hint)[0])


def options(hint: Any) -> Mapping[str, Any]:
    """The values of an enum or a literal, by what is written for them; nothing for other types."""
    values: Sequence[Any] = ()
    if typing.get_origin(hint) is Literal:
        values = typing.get_args(hint)
    elif isinstance(hint, type) and issubclass(hint, enum.Enum):
        values = list(hint)
    return {written(value): value for value in values}


def metavar(hint: Any) -> str:
    """What stands for a value in ``--help``."""
    each = _elements(hint)[0][0] if is_many(hint) else hint
    return "|".join(options(each)) or _METAVARS.get(each, "FILE")


def describe(hint: Any) -> str:
    """What a value must be."""
    elements, any_number = _elements(hint)
    if any_number:
        return f"values with commas between them, each {describe(elements[0])}"
    if elements:
        each = ", ".join(map(describe, elements))
        return f"{len(elements)} values with commas between them ({each})"
    return " or ".join(options(hint)) or _NAMES[hint]


def convert(hint: Any, raw: Any) -> Any:
    """A value as it came from a flag, from YAML or from Python, in its type.

    Raises:
        ValueError: it cannot be.
    """
    elements, any_number = _elements(hint)
    if elements:
        if isinstance(raw, str):
            raw = [each.strip() for each in raw.split(",")] if raw.strip() else []
        if not isinstance(raw, (list, tuple)):
            raise ValueError
        values = cast(Sequence[Any], raw)
        if any_number:
            elements = elements * len(values)
        made = [convert(each, value) for each, value in zip(elements, values, strict=True)]
        return made if typing.get_origin(hint) is list else tuple(made)
    if written(raw) in (allowed := options(hint)):
        return allowed[written(raw)]
    if hint is Path and isinstance(raw, (str, Path)):
        return Path(expand_user(str(raw)))
    if hint is bool and raw in ("true", "false"):
        return raw == "true"
    if hint in (bool, str) and isinstance(raw, hint):
        return raw
    is_number = isinstance(raw, (int, float)) and not isinstance(raw, bool)
    # YAML takes 1e-4 for text, so text is always worth a try.
    if hint in (int, float) and (isinstance(raw, str) or (is_number and hint(raw) == raw)):
        return hint(raw)
    raise ValueError


def plain(value: Any) -> Any:
    """A value as YAML and JSON hold it."""
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in cast(Sequence[Any], value)]
    if isinstance(value, enum.Enum):
        texts = all(isinstance(each.value, str) for each in type(value))
        return str(value.value) if texts else value.name
    return str(value) if isinstance(value, Path) else value


def written(value: Any) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, (list, tuple)):
        return ",".join(map(written, cast(Sequence[Any], value))) or "nothing"
    text = str(plain(value))
    return text.lower() if value is None or isinstance(value, bool) else text


def _elements(hint: Any) -> tuple[tuple[Any, ...], bool]:
    """The types of a list's or tuple's values, and whether any number of one type may be there."""
    arguments = typing.get_args(hint)
    if typing.get_origin(hint) is list:
        return arguments, True
    if typing.get_origin(hint) is not tuple:
        return (), False
    if arguments[1:] == (...,):
        return arguments[:1], True
    return arguments, False
