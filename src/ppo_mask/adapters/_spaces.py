"""Makes the observation spaces that Gymnasium and gymnax ask for."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs import AbstractEnv


def make_observation_space(env: AbstractEnv[Any], spaces: Any) -> Any:
    """Makes the space of an environment's observations, bounded only by the arrays' dtypes.

    ``spaces`` is the library's module.
    """
    _, timestep = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    return _make_space(timestep.observation, spaces)


def _make_space(shapes: Any, spaces: Any) -> Any:
    if isinstance(shapes, dict):
        return spaces.Dict({name: _make_space(part, spaces) for name, part in shapes.items()})
    if isinstance(shapes, list | tuple):
        return spaces.Tuple([_make_space(part, spaces) for part in shapes])
    if not isinstance(shapes, jax.ShapeDtypeStruct) or shapes.dtype.kind == "V":
        kind = getattr(shapes, "dtype", type(shapes).__name__)
        raise TypeError(
            f"observations hold a {kind}; a space can hold only arrays of NumPy's own dtypes, "
            "dicts, lists and tuples"
        )
    dtype: Any = np.dtype(shapes.dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        low, high = -np.inf, np.inf
    elif dtype == np.bool_:
        low, high = 0, 1
    else:
        low, high = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    return spaces.Box(low, high, shapes.shape, dtype)
