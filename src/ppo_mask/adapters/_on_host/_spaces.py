"""Converts observations of Gymnasium's spaces to trees of arrays."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces
from jaxtyping import Array

from ppo_mask.adapters._on_host._stepper import part_of, store
from ppo_mask.envs import ArrayInfo
from ppo_mask.envs.actions import NumActions
from ppo_mask.errors import warn
from ppo_mask.jax_tools import ArrayTree

_KEPT_AS = {"float16": "float32", "float64": "float32", "int64": "int32", "uint64": "uint32"}
"""JAX's dtypes have at most 32 bits by default."""


def counts_of(space: Any) -> NumActions:
    """Returns the number of values of a Discrete space, or of each part of one with parts."""
    if isinstance(space, spaces.MultiBinary):
        return (2,) * math.prod(space.shape)
    if isinstance(space, spaces.MultiDiscrete):
        return tuple(int(n) for n in space.nvec.reshape(-1))
    return int(space.n)


def tree_of(name: str, space: Any, where: str = "observation") -> Any:
    """Puts the parts of a space into dicts and tuples, as its observations have them.

    Texts in a Dict are left out, and named in a warning that begins with ``name``.

    Raises:
        ValueError: a part is not an array of fixed shape; the message names the part.
    """
    if isinstance(space, spaces.Dict):
        parts: dict[Any, Any] = {}
        for key, part in space.items():
            if getattr(part.dtype, "kind", "") == "U":
                warn(f"{name}: {where}[{key!r}] is text, and left out: networks take numbers")
            else:
                parts[key] = tree_of(name, part, f"{where}[{key!r}]")
        return parts
    if isinstance(space, spaces.Tuple):
        return tuple([tree_of(name, x, f"{where}[{i}]") for i, x in enumerate(space.spaces)])
    if isinstance(space, spaces.Box | spaces.Discrete | spaces.MultiBinary | spaces.MultiDiscrete):
        return space
    raise ValueError(
        f"{name}: {where} is of {space}; it must be a Box, Discrete, MultiBinary or MultiDiscrete, "
        "or a Dict or Tuple of them"
    )


def leaves_of(tree: Any) -> list[Any]:
    """Lists the path, dtype, shape and span of the arrays of a tree of spaces; see ``Layout``."""
    leaves: list[Any] = []
    space: Any
    for path, space in jax.tree_util.tree_leaves_with_path(tree):
        keys = tuple(key.idx if hasattr(key, "idx") else key.key for key in path)
        dtype, span = np.dtype(space.dtype).name, None
        if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
            counts = space.n if isinstance(space, spaces.Discrete) else space.nvec
            span = space.start, space.start + counts - 1
        leaves.append((keys, _KEPT_AS.get(dtype, dtype), space.shape, span))
    return leaves


def read_parts(observation: Any, leaves: Any) -> list[np.ndarray]:
    """Copies the arrays of one observation."""
    arrays: list[Any] = []
    for path, dtype, shape, span in leaves:
        arrays.append(np.zeros(shape, dtype))
        store(arrays[-1], (), part_of(observation, path), path, span)
    return arrays


def as_tree(tree: Any, arrays: Any) -> ArrayTree:
    """Puts the arrays of an observation into the dicts and tuples of a tree of spaces.

    Discrete and MultiDiscrete parts become one-hot rows, since a network would read the numbers as
    quantities.
    """
    leaves, structure = jax.tree.flatten(tree)
    return structure.unflatten(map(_encode, leaves, arrays))


def info_of(tree: Any, channels_first: bool | None) -> Any:
    """Makes a tree like an observation, of what its space knows of the arrays."""

    def info(space: Any) -> ArrayInfo:
        if not isinstance(space, spaces.Box):
            return ArrayInfo()
        return ArrayInfo((space.low.min(), space.high.max()), channels_first)

    return jax.tree.map(info, tree)


def _encode(space: Any, array: Array) -> Array:
    """Encodes Discrete as a one-hot row, MultiDiscrete as a row for each part."""
    if not isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        return array
    counts = np.atleast_1d(counts_of(space))
    values = (array.astype(jnp.int32) - np.asarray(space.start, np.int32)).reshape(-1)
    choices = np.repeat(np.arange(len(counts)), counts)
    numbers = np.concatenate([np.arange(n, dtype=np.int32) for n in counts])
    return (values[choices] == numbers).astype(jnp.float32)
