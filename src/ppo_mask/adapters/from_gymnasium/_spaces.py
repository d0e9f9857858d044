"""Converts observations of Gymnasium's spaces to trees of arrays."""

from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ppo_mask.adapters._gymnasium import gymnasium
from ppo_mask.adapters.from_gymnasium._stepper import part_of, store
from ppo_mask.envs import ArrayInfo
from ppo_mask.envs.actions import NumActions
from ppo_mask.jax_tools import ArrayTree

_NARROWER = {"float64": "float32", "int64": "int32", "uint64": "uint32"}
"""JAX's dtypes have at most 32 bits by default."""


class Leaf(NamedTuple):
    """An array of an observation, with its path in the observation and its space.

    ``span`` has the lowest and the highest value of a Discrete or MultiDiscrete space; else None.
    """

    path: tuple[Any, ...]
    dtype: str
    shape: tuple[int, ...]
    span: Any
    space: Any


def counts_of(space: Any) -> NumActions:
    """Returns the number of values of a Discrete space, or of each part of a MultiDiscrete."""
    if isinstance(space, gymnasium.spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.reshape(-1))
    return int(space.n)


def leaves_of(space: Any, path: tuple[Any, ...] = ()) -> list[Leaf]:
    """Lists the arrays of a space's observations, in the order of the space's parts.

    The texts in a Dict are left out, unless nothing else is in it.

    Raises:
        ValueError: a part is not an array of fixed shape; the message names the part.
    """
    spaces = gymnasium.spaces
    where = "".join(f"[{key!r}]" for key in path)
    if isinstance(space, spaces.Dict):
        parts = _without_texts(space)
        try:
            sorted(parts)
        except TypeError:  # JAX sorts keys.
            raise ValueError(f"observation{where} has keys of several types, {[*parts]}") from None
        return [leaf for key, part in parts.items() for leaf in leaves_of(part, (*path, key))]
    if isinstance(space, spaces.Tuple):
        parts = enumerate(space.spaces)
        return [leaf for key, part in parts for leaf in leaves_of(part, (*path, key))]
    if isinstance(space, spaces.Discrete):
        return [Leaf(path, "int32", (), _span(space, space.n), space)]
    if isinstance(space, spaces.Box | spaces.MultiBinary | spaces.MultiDiscrete):
        dtype = np.dtype(space.dtype).name
        if dtype == "float16":
            dtype = "float32"
        span = _span(space, space.nvec) if isinstance(space, spaces.MultiDiscrete) else None
        return [Leaf(path, _NARROWER.get(dtype, dtype), tuple(space.shape), span, space)]
    raise ValueError(
        f"observation{where} is of {space}; it must be a Box, Discrete, MultiBinary or "
        "MultiDiscrete, or a Dict or Tuple of them"
    )


def texts_in(space: Any, where: str = "observation") -> list[str]:
    """Names the texts that :func:`leaves_of` leaves out."""
    if not isinstance(space, gymnasium.spaces.Dict):
        return []
    kept = _without_texts(space)
    inner = [text for key, part in kept.items() for text in texts_in(part, f"{where}[{key!r}]")]
    return [f"{where}[{key!r}]" for key in space if key not in kept] + inner


def _without_texts(space: Any) -> dict[Any, Any]:
    parts = dict(space.items())
    texts = [key for key, part in parts.items() if getattr(part.dtype, "kind", "") == "U"]
    return {key: part for key, part in parts.items() if key not in texts} or parts


def _span(space: Any, counts: Any) -> Any:
    return space.start, space.start + counts - 1


@no_type_check
def read_parts(observation: Any, leaves: Any) -> Any:
    """Copies the arrays of one observation."""
    arrays: list[Any] = []
    for path, dtype, shape, span in leaves:
        arrays.append(np.zeros(shape, dtype))
        store(arrays[-1], (), part_of(observation, path), path, span)
    return arrays


def as_tree(space: Any, arrays: list[Array]) -> ArrayTree:
    """Puts the arrays of an observation into the dicts and tuples of its space.

    Discrete and MultiDiscrete parts become one-hot rows, since a network would read the numbers as
    quantities.
    """
    rest = iter(arrays)
    return _map_space(lambda part: _encode(part, next(rest)), space)


def info_of(space: Any, channels_first: bool | None) -> Any:
    """Makes a tree like an observation, of what its space knows of the arrays."""

    def info(part: Any) -> ArrayInfo:
        if not isinstance(part, gymnasium.spaces.Box):
            return ArrayInfo()
        return ArrayInfo((part.low.min(), part.high.max()), channels_first)

    return _map_space(info, space)


def _map_space(make: Callable[[Any], Any], space: Any) -> Any:
    if isinstance(space, gymnasium.spaces.Dict):
        return {key: _map_space(make, part) for key, part in _without_texts(space).items()}
    if isinstance(space, gymnasium.spaces.Tuple):
        return tuple([_map_space(make, part) for part in space.spaces])
    return make(space)


def _encode(space: Any, array: Array) -> Array:
    """Encodes Discrete as a one-hot row, MultiDiscrete as a row for each part."""
    if not isinstance(space, gymnasium.spaces.Discrete | gymnasium.spaces.MultiDiscrete):
        return array
    counts = np.atleast_1d(counts_of(space))
    values = (array.astype(jnp.int32) - np.asarray(space.start, np.int32)).reshape(-1)
    choices = np.repeat(np.arange(len(counts)), counts)
    numbers = np.concatenate([np.arange(n, dtype=np.int32) for n in counts])
    return (values[choices] == numbers).astype(jnp.float32)
