"""The observation spaces that Gymnasium and gymnax ask for."""

from typing import Any

import jax
import numpy as np

from ppo_mask.envs import AbstractEnv


def make_observation_space(env: AbstractEnv[Any], spaces: Any) -> Any:
    """Makes the space of an environment's observations, as wide as their dtypes.

    Args:
        env: the environment.
        spaces: the library's module that has ``Box``, ``Dict`` and ``Tuple``.

    Raises:
        TypeError: an observation is no tree of arrays, dicts, lists and tuples.
    """
    _, timestep = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    return _make_space(timestep.observation, spaces)


def _make_space(shapes: Any, spaces: Any) -> Any:
    if isinstance(shapes, dict):
        return spaces.Dict({name: _make_space(part, spaces) for name, part in shapes.items()})
    if isinstance(shapes, list | tuple):
        return spaces.Tuple([_make_space(part, spaces) for part in shapes])
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
        low, high = int(np.iinfo(dtype).min), int(np.iinfo(dtype).max)
    return spaces.Box(low, high, shapes.shape, dtype)
