"""A tree's structure as plain JSON, for a process that has not made such a tree."""

import dataclasses
import sys
from collections.abc import Collection, Sequence
from typing import Any, TypeVar, cast

import equinox as eqx
import jax

_Kind = TypeVar("_Kind")

_PLAIN = (bool, int, float, str, type(None))


class StructureError(Exception):
    """A tree with a part that JSON has no place for, or JSON that is no tree's."""


@dataclasses.dataclass(frozen=True)
class _Leaf:
    number: int


def to_json(tree: Any) -> Any:
    """The structure of a tree of arrays in tuples, lists, dictionaries and modules.

    Raises:
        StructureError: something else is in it.
    """
    leaves, structure = jax.tree.flatten(tree)
    if not all(map(eqx.is_array, leaves)):
        raise StructureError("a leaf that is no array")
    return _encoded(jax.tree.unflatten(structure, map(_Leaf, range(len(leaves)))))


def _encoded(x: Any) -> Any:
    if isinstance(x, _Leaf):
        return ["leaf", x.number]
    if type(x) in _PLAIN:
        return ["value", x]
    if type(x) in (tuple, list):
        return [type(x).__name__, [_encoded(part) for part in x]]
    if type(x) is dict and all(isinstance(key, str) for key in cast(dict[Any, Any], x)):
        return ["dict", {key: _encoded(value) for key, value in cast(dict[str, Any], x).items()}]
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        parts = [_encoded(part) for part in cast(tuple[Any, ...], x)]
        return ["named", type(x).__module__, type(x).__qualname__, parts]
    if isinstance(x, eqx.Module):
        fields = {name: _encoded(value) for name, value in vars(x).items()}
        return ["module", type(x).__module__, type(x).__qualname__, fields]
    raise StructureError(f"a {type(x).__qualname__} in a tree")


def from_json(structure: Any, leaves: Sequence[Any], packages: Collection[str]) -> Any:
    """The tree of that structure with these leaves.

    Args:
        structure: from :func:`to_json`.
        leaves: in the tree's order.
        packages: where modules may be from. Nothing of them is called.

    Raises:
        StructureError: it is no such structure.
    """

    def decoded(x: Any) -> Any:
        match x:
            case ["leaf", int(number)] if 0 <= number < len(leaves):
                return leaves[number]
            case ["value", value] if type(value) in _PLAIN:
                return value
            case ["tuple", list(parts)]:
                return tuple(map(decoded, cast(list[Any], parts)))
            case ["list", list(parts)]:
                return list(map(decoded, cast(list[Any], parts)))
            case ["dict", dict(items)]:
                return {key: decoded(value) for key, value in cast(dict[str, Any], items).items()}
            case ["named", str(module), str(name), list(parts)]:
                named = _class(module, name, packages, tuple)
                return tuple.__new__(named, map(decoded, cast(list[Any], parts)))
            case ["module", str(module), str(name), dict(fields)]:
                tree = object.__new__(_class(module, name, packages, eqx.Module))
                for field, value in cast(dict[str, Any], fields).items():
                    object.__setattr__(tree, field, decoded(value))
                return tree
            case _:
                raise StructureError(f"no structure: {str(x)[:80]}")

    return decoded(structure)


def _class(module: str, name: str, packages: Collection[str], kind: type[_Kind]) -> type[_Kind]:
    found: Any = sys.modules.get(module) if module.partition(".")[0] in packages else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and issubclass(found, kind)):
        raise StructureError(f"no {kind.__name__} {name} in {module}")
    return found
