"""``jax.random`` over several axes: the same numbers, in programs that compile faster.

XLA's CPU compiler takes two or three times as long for the rounds of JAX's generator over an array
of several axes as over one axis of as many numbers, and they are most of such a program.
"""

import math

import jax
from jaxtyping import Array, Key, UInt32


def split_key(key: Key[Array, ""], *shape: int) -> Key[Array, "..."]:
    """Splits a key as ``jax.random.split(key, shape)`` does."""
    return jax.random.split(key, math.prod(shape)).reshape(shape)


def random_bits(key: Key[Array, ""], *shape: int) -> UInt32[Array, "..."]:
    """Draws random words as ``jax.random.bits(key, shape)`` does."""
    return jax.random.bits(key, (math.prod(shape),), jax.numpy.uint32).reshape(shape)
