"""Random numbers of one step, from one key.

A step needs an unknown number of small draws. One call of the key's own generator gives two words;
each draw mixes them with its number by a SplitMix-style finaliser (Steele et al. 2014, "Fast
splittable pseudorandom number generators"; the constants are Wellons' 32-bit ones). Equal numbers
give equal draws, so each use has its own range of numbers.
"""

from enum import IntEnum

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Integer, Key, UInt32

_GOLDEN = 0x9E3779B9  # 2^32 / golden ratio, odd: consecutive numbers land far apart


class Use(IntEnum):
    """What a draw is for; each use has its own million of draw numbers."""

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


_NUMBERS_PER_USE = 1 << 20


class Draws(eqx.Module):
    """As many independent draws as a step wants."""

    words: UInt32[Array, "2"]

    def __init__(self, key: Key[Array, ""]):
        self.words = jax.random.bits(key, (2,), jnp.uint32)

    def below(
        self,
        bound: Integer[Array, "*#shape"] | int,
        use: Use,
        number: Integer[Array, "*#shape"] | int = 0,
    ) -> Int[Array, "*shape"]:
        """Uniform over 0 … bound − 1 (bound under 2^16): the draw of that use and number."""
        counter = jnp.asarray(number).astype(jnp.uint32) + jnp.uint32(use * _NUMBERS_PER_USE)
        bits = _mix(_mix(self.words[0] + counter * jnp.uint32(_GOLDEN)) ^ self.words[1])
        # The high word of the 64-bit product bits * bound, in 32-bit arithmetic.
        bound = jnp.asarray(bound).astype(jnp.uint32)
        low = ((bits & 0xFFFF) * bound) >> 16
        return (((bits >> 16) * bound + low) >> 16).astype(jnp.int32)


def _mix(x: UInt32[Array, "*shape"]) -> UInt32[Array, "*shape"]:
    x = (x ^ (x >> 16)) * jnp.uint32(0x7FEB352D)
    x = (x ^ (x >> 15)) * jnp.uint32(0x846CA68B)
    return x ^ (x >> 16)
