"""``jax.random`` for many numbers at once: the same ones, in programs that are quicker to compile.

XLA's CPU compiler takes two or three times as long for the rounds of JAX's generator over an array
of several axes as over one axis of as many numbers, and they are most of such a program.
"""

import math

import jax
from jaxtyping import Array, Key, UInt32


def split_key(key: Key[Array, ""], *shape: int) -> Key[Array, "..."]:
    """``jax.random.split(key, shape)``."""
    return jax.random.split(key, math.prod(shape)).reshape(shape)


def random_bits(key: Key[Array, ""], *shape: int) -> UInt32[Array, "..."]:
    """``jax.random.bits(key, shape)``."""
    return jax.random.bits(key, (math.prod(shape),)).reshape(shape)
