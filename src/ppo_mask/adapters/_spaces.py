"""The spaces of observations, for libraries that want one."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from ppo_mask.envs import AbstractEnv


class Spaces(NamedTuple):
    """How a library makes its spaces.

    Attributes:
        box: of arrays: from the least value, the greatest, the shape and the dtype.
        mapping: of a dict of spaces.
        sequence: of a list of spaces.
    """

    box: Callable[[Any, Any, tuple[int, ...], Any], Any]
    mapping: Callable[[dict[str, Any]], Any]
    sequence: Callable[[list[Any]], Any]


def observation_space(env: AbstractEnv[Any], spaces: Spaces) -> Any:
    """The space of an environment's observations; of numbers, as wide as their dtype.

    Raises:
        TypeError: observations are no tree of arrays, dicts, lists and tuples.
    """
    _, timestep = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    return _space(timestep.observation, spaces)


def _space(shapes: Any, spaces: Spaces) -> Any:
    if isinstance(shapes, dict):
        return spaces.mapping({name: _space(part, spaces) for name, part in shapes.items()})
    if isinstance(shapes, list | tuple):
        return spaces.sequence([_space(part, spaces) for part in shapes])
    if not isinstance(shapes, jax.ShapeDtypeStruct):
        raise TypeError(
            f"observations hold a {type(shapes).__name__}; spaces are of arrays, dicts, lists and "
            "tuples"
        )
    dtype: Any = np.dtype(shapes.dtype)
    if np.issubdtype(dtype, np.floating):
        low, high = -np.inf, np.inf
    elif dtype == np.bool_:
        low, high = 0, 1
    else:
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
    return spaces.box(low, high, shapes.shape, dtype)
