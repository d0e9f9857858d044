"""Two ways to tell the compiler something about the batch a rule runs in.

Rules are written for one game and batched by ``jax.vmap``. Neither function changes a result.
"""

from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Bool, Int, Shaped


@custom_vmap
def batch_max(value: Int[Array, ""]) -> Int[Array, ""]:
    """The largest value in the batch, the same for all its members; the value itself unbatched.

    For loops: with a bound of its own for each member, ``vmap`` would guard every iteration.
    """
    return value


@batch_max.def_vmap
def _(size: int, batched: Any, value: Any) -> Any:  # pyright: ignore
    del size, batched
    return batch_max(jnp.max(value)), False


def computed_once(value: Shaped[Array, "*n"], never: Bool[Array, ""]) -> Shaped[Array, "*n"]:
    """The value, put into memory here.

    XLA's CPU compiler merges elementwise operations into those that use them, even where each use
    computes all of it again. It does not look through a loop, so this is a loop that never runs.

    Args:
        value: of a number type.
        never: False, in a way that the compiler cannot know.
    """
    return lax.while_loop(
        lambda carry: carry[0], lambda carry: (jnp.bool_(False), carry[1] + 1), (never, value)
    )[1]
