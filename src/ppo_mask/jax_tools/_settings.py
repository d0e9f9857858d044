"""JAX's settings of how numbers of different types and shapes go together."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TypeVar

import jax

Function = TypeVar("Function", bound=Callable[..., object])


@contextmanager
def number_settings(
    x64: bool = False, dtypes: str = "standard", ranks: str = "allow"
) -> Generator[None]:
    """Has what is traced in it mean what it means under JAX's default settings.

    For code that relies on them: a program may have set ``jax_enable_x64``, or have made
    ``jax_numpy_dtype_promotion`` or ``jax_numpy_rank_promotion`` strict. It may be used as a
    decorator, too. Arrays that come from outside are to have types of 32 bits.

    Args:
        x64: as ``jax_enable_x64``.
        dtypes: as ``jax_numpy_dtype_promotion``.
        ranks: as ``jax_numpy_rank_promotion``.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> with jax.numpy_dtype_promotion("strict"), pm.jax_tools.number_settings():
        ...     print(jnp.int32(1) + 0.5)
        1.5
    """
    with jax.enable_x64(x64), jax.numpy_dtype_promotion(dtypes), jax.numpy_rank_promotion(ranks):
        yield


def keep_settings(function: Function) -> Function:
    """Has a function traced under the settings of now, whenever it will be traced."""
    config = jax.config
    now = number_settings(
        config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_dtype_promotion,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_rank_promotion,  # pyright: ignore[reportAttributeAccessIssue]
    )
    return now(function)
