"""Makes the observation spaces that Gymnasium and gymnax ask for."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs import AbstractEnv


def make_observation_space(
    env: AbstractEnv[Any], spaces: Any, as_type: Callable[[Any], Any] = np.dtype
) -> Any:
    """Makes the space of an environment's observations, bounded only by the arrays' dtypes.

    ``spaces`` is the library's module; ``as_type`` maps an array's dtype to that of its space.
    """
    _, timestep = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    return _make_space(timestep.observation, spaces, as_type)


def number_type(dtype: Any) -> np.dtype[Any]:
    """Replaces a dtype that NumPy lacks, such as bfloat16 or int4, with a NumPy dtype."""
    dtype = np.dtype(dtype)
    if dtype.kind != "V":
        return dtype
    kinds = {jnp.floating: np.float32, jnp.signedinteger: np.int8, jnp.unsignedinteger: np.uint8}
    return np.dtype(next(own for kind, own in kinds.items() if jnp.issubdtype(dtype, kind)))


def _make_space(shapes: Any, spaces: Any, as_type: Callable[[Any], Any]) -> Any:
    if isinstance(shapes, dict):
        return spaces.Dict(
            {name: _make_space(part, spaces, as_type) for name, part in shapes.items()}
        )
    if isinstance(shapes, list | tuple):
        return spaces.Tuple([_make_space(part, spaces, as_type) for part in shapes])
    if not isinstance(shapes, jax.ShapeDtypeStruct):
        raise TypeError(
            f"observations hold a {type(shapes).__name__}; a space can hold only arrays, dicts, "
            "lists and tuples"
        )
    dtype: Any = as_type(shapes.dtype)
    if jnp.issubdtype(dtype, jnp.floating):
        low, high = -np.inf, np.inf
    elif dtype == np.bool_:
        low, high = 0, 1
    else:
        low, high = int(jnp.iinfo(dtype).min), int(jnp.iinfo(dtype).max)
    return spaces.Box(low, high, shapes.shape, dtype)
