"""Random numbers of one step, here called draws, from one key.

How many draws a step needs is not known in advance, so one call of JAX's generator gives two words
for all draws of the step. The draws are numbered. Each draw mixes its number with the two words by
a SplitMix-style finalizer (Steele et al. 2014, "Fast splittable pseudorandom number generators")
with Wellons' 32-bit constants. Equal numbers give equal draws, so each use has its own
range of numbers.
"""

from enum import IntEnum

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Integer, Key, UInt32

from hackmatrix.rules.game import build

_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio, odd: consecutive numbers land far apart


class Use(IntEnum):
    """The purpose of a draw; each use has its own range of draw numbers."""

    WARP = 0
    POLY = 1
    ORDER = 2
    SPAWN_CELL = 3
    SPAWN_TYPE = 4
    EXIT = 5
    BLOCK_COUNT = 6
    BLOCK_CELL = 7
    BLOCK_KIND = 8
    BLOCK_HIDDEN = 9
    POINTS = 10
    PROGRAM = 11
    RESOURCE_KIND = 12
    AMOUNT = 13
    CORNER = 14
    BONUS = 15
    STAGE = 16
    HEAD_START = 17
    GIVEN = 18
    GIVEN_PROGRAM = 19


_NUMBERS_PER_USE = 1 << 20


class Draws(eqx.Module):
    """Any number of independent draws."""

    words: UInt32[Array, "2"]

    def __init__(self, key: Key[Array, ""]):
        # One block of the generator has both words; asking for two words would compute two blocks.
        self.words = jax.random.key_data(jax.random.fold_in(key, 0))[:2]

    @classmethod
    def of_each(cls, *keys: Key[Array, ""]) -> tuple["Draws", ...]:
        """The draws of each key, with one call of the generator, which is slow to compile."""
        many = jax.vmap(cls)(jnp.stack(keys))
        return tuple(build(cls, words=row) for row in many.words)

    def word(
        self, use: Use, number: Integer[Array | np.ndarray, "*shape"] | int = 0
    ) -> UInt32[Array, "*shape"]:
        """32 random bits, for the given use and number."""
        x = self.words[0] + _spread(number, use)
        x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
        # The second word enters halfway, so one mixing covers both words of the seed.
        x = (x ^ (x >> 15) ^ self.words[1]) * jnp.uint32(0x846CA68B)
        return x ^ (x >> 16)

    def below(
        self,
        bound: Integer[Array, "*#shape"] | int,
        use: Use,
        number: Integer[Array | np.ndarray, "*#shape"] | int = 0,
    ) -> Int[Array, "*shape"]:
        """A uniform integer in 0 … bound - 1, for the given use and number.

        The integer is exactly uniform if the bound is a power of two. Otherwise a value's
        probability is off by a factor of at most 1 ± bound / 2^23.
        """
        # 23 bits: with 24, the largest value times the bound would round up to the bound.
        bits = (self.word(use, number) >> 9).astype(jnp.float32)
        return (bits * (jnp.asarray(bound).astype(jnp.float32) * 2.0**-23)).astype(jnp.int32)


def _spread(number: Array | np.ndarray | int, use: Use) -> UInt32[Array | np.ndarray, "*shape"]:
    """The states of a Weyl sequence: the draw's number times a large odd constant."""
    first = use * _NUMBERS_PER_USE
    if isinstance(number, int | np.ndarray):  # Constants, computed while tracing.
        numbers = np.asarray(number, np.uint64) + np.uint64(first)
        return np.asarray(numbers * np.uint64(_GOLDEN)).astype(np.uint32)
    return (number.astype(jnp.uint32) + jnp.uint32(first)) * jnp.uint32(_GOLDEN)
