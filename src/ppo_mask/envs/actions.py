"""What an action is: Discrete or MultiDiscrete, as in Gymnasium.

The field ``num_actions`` of an environment or a network says which. If ``num_actions`` is a number
``n``, an action is an integer below ``n``. If ``num_actions`` is a tuple ``(a, b, …)``, an action
is MultiDiscrete, with one integer for each part. The mask then concatenates the parts' masks, and
has a length of ``a + b + …``.
"""

import itertools
from collections.abc import Iterator
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from ppo_mask.jax_tools import IntScalarLike, number_settings

NumActions: TypeAlias = int | tuple[int, ...]
"""The number of actions; if MultiDiscrete, a tuple with the number of each part."""

Action: TypeAlias = Int[Array, ""] | Int[Array, " parts"]
"""An action: an integer; if MultiDiscrete, an integer for each part."""

ActionLike: TypeAlias = IntScalarLike | Int[Array, " parts"] | Int[np.ndarray, " parts"]
"""An action as callers may pass it: an integer of any type, or an array of integers."""


def mask_length(num_actions: NumActions) -> int:
    """Returns the length of a mask: the number of actions, summed over the parts.

    Example:
        >>> from ppo_mask.envs.actions import mask_length
        >>> mask_length(5), mask_length((3, 5))
        (5, 8)
    """
    return num_actions if isinstance(num_actions, int) else sum(num_actions)


def action_shape(num_actions: NumActions) -> tuple[int, ...]:
    """Returns the shape of one action: ``()``; if MultiDiscrete, ``(parts,)``."""
    return () if isinstance(num_actions, int) else (len(num_actions),)


def describe_actions(num_actions: NumActions) -> str:
    """Describes an environment's actions in words.

    Example:
        >>> from ppo_mask.envs.actions import describe_actions
        >>> describe_actions(32), describe_actions((3, 5)), describe_actions((21,) * 10)
        ('32 actions', '3 x 5 actions', '10 choices of 21 actions')
    """
    if isinstance(num_actions, int):
        return f"{num_actions} actions"
    if 1 < len(num_actions) <= 4:
        return f"{' x '.join(map(str, num_actions))} actions"
    least, most = min(num_actions), max(num_actions)
    sizes = f"{least}" if least == most else f"{least} to {most}"
    return f"{len(num_actions)} choice{'s' * (len(num_actions) > 1)} of {sizes} actions"


def split_parts(row: Any, num_actions: tuple[int, ...]) -> Iterator[tuple[slice, Any]]:
    """Splits the last axis, which holds the actions, into MultiDiscrete parts.

    Neighboring parts of equal size form one array, so that they can be computed together
    without padding.

    Args:
        row: a JAX or NumPy array ``[*batch, actions]``.
        num_actions: the number of actions of each part.

    Yields:
        A slice of parts, and their array ``[*batch, parts, size]``.
    """
    part = start = 0
    for size, run in itertools.groupby(num_actions):
        count = len(list(run))
        stop = start + count * size
        yield slice(part, part + count), row[..., start:stop].reshape(*row.shape[:-1], count, size)
        part, start = part + count, stop


def count_allowed(
    mask: Bool[Array, "*batch actions"], num_actions: NumActions
) -> Int[Array, "*counts"]:
    """Counts the actions that a mask allows; if MultiDiscrete, those of each part."""
    if isinstance(num_actions, int):
        return mask.sum(axis=-1, dtype=jnp.int32)
    parts = [part.sum(axis=-1, dtype=jnp.int32) for _, part in split_parts(mask, num_actions)]
    return jnp.concatenate(parts, axis=-1)


def allows_action(
    mask: Bool[Array, "*batch actions"], num_actions: NumActions
) -> Bool[Array, "*batch"]:
    """Whether a mask allows at least one action; if MultiDiscrete, one in each part."""
    if isinstance(num_actions, int):
        return mask.any(axis=-1)
    return (count_allowed(mask, num_actions) > 0).all(axis=-1)


def random_action(
    key: Key[Array, ""], mask: Bool[Array, " actions"], num_actions: NumActions
) -> Action:
    """Samples uniformly from the allowed actions."""
    with number_settings():
        scores = jnp.where(mask, jax.random.uniform(key, mask.shape), -1)
    if isinstance(num_actions, int):
        return jnp.argmax(scores).astype(jnp.int32)
    parts = [part.argmax(-1).astype(jnp.int32) for _, part in split_parts(scores, num_actions)]
    return jnp.concatenate(parts)


def as_action(action: Any, num_actions: NumActions) -> Action:
    """Converts an action to an int32 array.

    Raises:
        ValueError: a MultiDiscrete action does not have one integer for each part.
    """
    if isinstance(num_actions, int):
        return _as_number(action)
    if not isinstance(action, jax.Array):
        action = np.asarray(action)
    if action.shape != (len(num_actions),) or not jnp.issubdtype(action.dtype, jnp.integer):
        raise ValueError(
            f"action is {action.dtype}{list(action.shape)}, not int32[{len(num_actions)}]: one of "
            f"each part of {describe_actions(num_actions)}"
        )
    return jnp.asarray(action, jnp.int32)


def _as_number(action: IntScalarLike) -> Int[Array, ""]:
    return jnp.asarray(action, jnp.int32)
