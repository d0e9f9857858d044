"""Stores a network's architecture as JSON: class names and hyperparameters.

A tuple is stored as ``{"tuple": [...]}``. NumPy scalars become Python scalars.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from types import FunctionType
from typing import Any, NoReturn, cast

import equinox as eqx
import jax
import numpy as np

from ppo_mask.networks import AbstractActorCritic, AbstractReader, Model

Part = Model | AbstractActorCritic | AbstractReader
"""What an architecture consists of, each with its ``hyperparameters``."""

_NETWORK, _TUPLE = {"network", "hyperparameters"}, {"tuple"}
_PLAIN = (bool, int, float, str)
_SHOWN = 100  # An error shows at most this many characters of a value.


class UnknownNetwork(Exception):
    """A stored architecture names an unknown class."""


def architecture_of(model: Part) -> dict[str, Any]:
    """Describes a network's architecture, so that :func:`load_policy` can rebuild the network.

    Args:
        model: the model whose arrays are saved, such as ``state.model``; an algorithm's ``init``
            may have changed the model that it was given. Or a part of a model.

    Returns:
        Class names and hyperparameters, nested like the parts of ``model``.

    Raises:
        ValueError: a hyperparameter cannot be stored, or the hyperparameters build a different
            model. The message is one line and names the hyperparameter, or the field that differs.
    """
    classes: dict[str, Any] = {}
    architecture = _stored(model, "", "", classes)
    name = type(model.network if isinstance(model, Model) else model).__name__
    try:
        again = eqx.filter_eval_shape(build, json.loads(json.dumps(architecture)), classes)
    # A custom constructor may raise anything.
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    else:
        ours, theirs = (dict(_fields(each)) for each in (model, again))
        different = [x for x in (*ours, *theirs) if not _same(ours.get(x), theirs.get(x))]
        if not different:
            return architecture
        field = different[0]
        was, wanted = (_shown(each.get(field)) for each in (theirs, ours))
        reason = f"{field} is {was}, not {wanted}"
    reason = " ".join(reason.split())
    raise ValueError(f"the hyperparameters of {name} do not make such a network again: {reason}")


def build(architecture: Any, classes: Mapping[str, Any]) -> Any:
    """Builds a network from its architecture, with arbitrary weights.

    Raises:
        UnknownNetwork: the architecture names a class that is not in ``classes``.
    """

    def read(value: Any) -> Any:
        if isinstance(value, list):
            return [read(each) for each in cast(list[Any], value)]
        if not isinstance(value, dict):
            return value
        values = cast(dict[str, Any], value)
        if values.keys() == _TUPLE:
            return tuple(read(values["tuple"]))
        if values.keys() != _NETWORK:
            return {key: read(each) for key, each in values.items()}
        if (name := values["network"]) not in classes:
            raise UnknownNetwork(name)
        given = {key: read(x) for key, x in values["hyperparameters"].items()}
        is_network = issubclass(classes[name], AbstractActorCritic)
        return classes[name](**given, **({"key": jax.random.key(0)} if is_network else {}))

    return read(architecture)


def is_architecture_of(saved: Any, model: Model) -> bool:
    """Whether a network has the saved architecture.

    A hyperparameter added to the class after the save takes the constructor's default.
    """
    classes: dict[str, Any] = {}
    asked = _stored(model, "", "", classes)
    try:
        return _stored(eqx.filter_eval_shape(build, saved, classes), "", "", {}) == asked
    except Exception:  # A custom constructor may raise anything.
        return False


def _stored(value: Any, network: str, name: str, classes: dict[str, Any]) -> Any:
    """Converts the hyperparameter ``name`` of ``network``, or a value inside of it, to JSON."""
    if isinstance(value, Part):
        network = type(value).__name__
        if classes.setdefault(network, type(value)) is not type(value):
            _refuse(network, name, value, ", but not two classes of one name")
        fields: Any = value.hyperparameters
        if type(fields) is not dict:
            _refuse(network, "the whole", fields, " stand in one by the constructor's arguments")
        stored = {key: _stored(x, network, str(key), classes) for key, x in fields.items()}
        return {"network": network, "hyperparameters": stored}
    value = _without_numpy(value)
    if type(value) in (list, tuple):
        items = [_stored(x, network, f"{name}[{i}]", classes) for i, x in enumerate(value)]
        return items if type(value) is list else {"tuple": items}
    if type(value) is dict:
        if not all(type(key) is str for key in value) or value.keys() in (_NETWORK, _TUPLE):
            _refuse(network, name, value)
        return {key: _stored(x, network, f"{name}[{key!r}]", classes) for key, x in value.items()}
    if value is not None and type(value) not in _PLAIN:
        _refuse(network, name, value)
    return value


def _without_numpy(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) and type(value.item()) in _PLAIN else value


def _refuse(network: str, name: str, value: object, but: str = "") -> NoReturn:
    raise ValueError(
        f"the hyperparameters of {network} cannot be saved: {name} is {_shown(value)}; numbers, "
        "text, True, False, None, networks, and lists, tuples and dictionaries (with text as keys) "
        f"of these can{but}"
    )


def _shown(value: object) -> str:
    shown = value if isinstance(value, _Shape) else " ".join(repr(value).split())
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."


class _Shape(str):
    """The dtype and shape of an array, whose values are not a part of the architecture."""


def _fields(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Lists all that a model consists of, by dotted names: shapes of arrays, and other values."""
    value = _without_numpy(value)
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        parts = {each: getattr(value, each, None) for each in names}
    elif isinstance(value, list | tuple):
        parts = dict(enumerate(cast(Any, value)))
    elif isinstance(value, dict):
        parts = cast(Any, value)
    else:
        is_array = eqx.is_array(value) or isinstance(value, jax.ShapeDtypeStruct)
        yield name, _Shape(f"{value.dtype}{list(value.shape)}") if is_array else value
        return
    for key, part in parts.items():
        yield from _fields(part, f"{name}.{key}".lstrip("."))


def _same(one: Any, other: Any) -> bool:
    """Whether two values are equal; functions are if they run the same code on equal values."""
    if one is other:
        return True
    if isinstance(one, FunctionType) and isinstance(other, FunctionType):
        cells = ([x.cell_contents for x in f.__closure__ or ()] for f in (one, other))
        return one.__code__ == other.__code__ and all(map(_same, *cells))
    try:
        return bool(np.all(one == other))
    except Exception:  # A custom comparison may raise anything.
        return False
