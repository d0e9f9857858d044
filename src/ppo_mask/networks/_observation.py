"""How the library's networks read an observation: which arrays they scale, and where channels are.

This is decided when a network is made for an environment, and kept among the network's
hyperparameters, so a saved policy reads observations as in its training.
"""

from typing import Any, TypeAlias

import jax
import jax.numpy as jnp

from ppo_mask.envs import ArrayInfo, declared_info
from ppo_mask.errors import ProtocolError
from ppo_mask.jax_tools import ArrayTree, plain_dicts

Bounds: TypeAlias = tuple[tuple[float, float] | None, ...]
"""For each array, the values that become 0 and 1, or None to leave it as it is; () for no array."""
Shape: TypeAlias = tuple[int, int, int]

_SMALL = 10
"""Integers up to this are left as they are. Scaled from 0 and 8 to 0 and 1, navix's symbols took an
MLP about twice as many steps to learn from."""
SMALLEST_SIDE = 3
"""Cells per side of a grid; the size of a kernel."""


def find_grid(
    env: Any, observation: Any, channels_first: bool | None = None
) -> tuple[Shape, bool | None] | None:
    """Finds the first image or board in an environment's observation.

    Args:
        env: the environment.
        observation: the shapes of its observation.
        channels_first: whether the grid's first axis, not its last, has the channels; None for what
            the environment knows.

    Returns:
        The grid's shape, and whether channels come first, if that is known; None without a grid.
    """
    for leaf, info in _arrays(env, observation):
        known = info.channels_first if channels_first is None else channels_first
        if len(leaf.shape) == 3:
            *sides, channels = channels_last(leaf.shape, known)
            if min(sides) >= SMALLEST_SIDE and channels:
                return leaf.shape, known
    return None


def bounds_of(env: Any, observation: Any, grid_shape: Shape | None = None) -> Bounds:
    """Finds the arrays to scale: integers over 10 whose bounds the environment knows.

    The bounds of a dtype's whole range say nothing, except for bytes; those of the grid are from 0
    to 255 unless the environment knows better.
    """

    def bounds(leaf: jax.ShapeDtypeStruct, info: ArrayInfo) -> tuple[float, float] | None:
        is_byte = leaf.dtype == jnp.uint8
        known = info.bounds or ((0, 255) if is_byte and leaf.shape == grid_shape else None)
        if known is None or not jnp.issubdtype(leaf.dtype, jnp.integer):
            return None
        (low, high), whole = map(float, known), jnp.iinfo(leaf.dtype)
        is_known = is_byte or (whole.min < low and high < whole.max)
        is_large = low < high and max(-low, high) > _SMALL
        return (low, high) if is_known and is_large else None

    found = tuple(bounds(leaf, info) for leaf, info in _arrays(env, observation))
    return found if any(found) else ()


def scale(observation: ArrayTree, bounds: Bounds) -> ArrayTree:
    """Scales an observation's arrays, from their bounds to [0, 1].

    Raises:
        ValueError: the observation does not have an array for each of the bounds.
    """
    if not bounds:
        return observation
    leaves, structure = jax.tree.flatten(plain_dicts(observation))
    if len(leaves) != len(bounds):
        raise ValueError(f"the network takes {len(bounds)} arrays, got {len(leaves)}")
    for i, each in enumerate(bounds):
        if each is not None:
            leaves[i] = (leaves[i].astype(jnp.float32) - each[0]) / (each[1] - each[0])
    return structure.unflatten(leaves)


def is_shortest_first(shape: Shape) -> bool:
    """Whether a grid's first axis is shorter than the others, as an axis of channels mostly is."""
    return shape[0] < min(shape[1:])


def channels_last(shape: Shape, channels_first: bool | None) -> Shape:
    """Returns a grid's rows, columns and channels; None looks which axis is the shortest."""
    first = is_shortest_first(shape) if channels_first is None else channels_first
    return (shape[1], shape[2], shape[0]) if first else shape


def _arrays(env: Any, observation: Any) -> list[tuple[jax.ShapeDtypeStruct, ArrayInfo]]:
    declared = declared_info(env)
    try:
        infos = jax.tree.leaves(jax.tree.broadcast(declared, observation))
    except ValueError:
        raise ProtocolError(f"observation_info is {declared}, not like the observation") from None
    return list(zip(jax.tree.leaves(observation), infos, strict=True))
