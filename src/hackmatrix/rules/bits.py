"""Small sets of numbers as the bits of two words, with ``word_bits`` bits in each word.

Sets of cells (:mod:`hackmatrix.rules.planes`) and sets of slots (:mod:`hackmatrix.rules.entities`)
share these functions. A step calls the functions hundreds of times; ``jax.jit`` makes JAX trace,
batch and lower each function only once for each shape.

In XLA, shifting by 32 places or more gives 0 on every device, so the functions need not check which
of the two words a number is in.
"""

from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, Integer, UInt, UInt32

from hackmatrix.rules.batching import join, join_in_pairs, total
from ppo_mask.jax_tools import by_platform

Words = tuple[UInt32[Array, "*batch"], UInt32[Array, "*batch"]]


@partial(jax.jit, static_argnames="word_bits")
def single(index: Integer[Array, "*batch"], word_bits: int) -> Words:
    """The set that holds only ``index``."""
    return shift(1, index, word_bits)


def shift(pattern: int, places: Integer[Array, "*batch"], word_bits: int) -> Words:
    """The pattern's bits, moved up by ``places``; they must all end up in the same word."""
    places, word = places.astype(jnp.uint32), jnp.uint32(pattern)
    full = jnp.uint32((1 << word_bits) - 1)
    return (word << places) & full, word << (places - jnp.uint32(word_bits))


@partial(jax.jit, static_argnames="word_bits")
def pack(flags: Bool[Array, "*batch n"], word_bits: int) -> Words:
    """The indices of the flags that are on, as a set."""
    weight = np.uint32(1) << np.arange(word_bits, dtype=np.uint32)
    halves = flags.reshape(*flags.shape[:-1], 2, word_bits)
    words = join(jnp.where(halves, weight, jnp.uint32(0)))
    return words[..., 0], words[..., 1]


def flags_of(word: UInt[Array, ""], count: int) -> Bool[Array, "count"]:
    """The lowest ``count`` bits of a word, as flags."""
    return ((word >> np.arange(count, dtype=word.dtype)) & 1) != 0


def word(values: Sequence[Bool[Array, ""]]) -> UInt32[Array, ""]:
    """Packs at most 32 flags, one bit each; the inverse of :func:`flags_of`."""
    return join_in_pairs([value.astype(jnp.uint32) << bit for bit, value in enumerate(values)])


@partial(jax.jit, static_argnames="word_bits")
def union(
    numbers: Integer[Array, " n"], members: Bool[Array, "*sets n"], word_bits: int
) -> tuple[UInt32[Array, "*sets"], UInt32[Array, "*sets"]]:
    """For each row of ``members``, the set of the numbers that the row flags."""
    half = np.arange(2, dtype=np.int32)[:, None]
    index = (numbers - word_bits * half).astype(jnp.uint32)
    bit = (jnp.uint32(1) << index) & jnp.uint32((1 << word_bits) - 1)
    words = join(jnp.where(members[..., None, :], bit, jnp.uint32(0)))
    return words[..., 0], words[..., 1]


@partial(jax.jit, static_argnames="word_bits")
def has(
    lo: UInt32[Array, ""], hi: UInt32[Array, ""], word_bits: int, index: Integer[Array, "*n"]
) -> Bool[Array, "*n"]:
    """For each index, whether the set holds it."""
    index = index.astype(jnp.uint32)
    return (((lo >> index) | (hi >> (index - jnp.uint32(word_bits)))) & 1) != 0


@partial(jax.jit, static_argnames="word_bits")
def lowest(
    lo: UInt32[Array, "*batch"], hi: UInt32[Array, "*batch"], word_bits: int
) -> Int[Array, "*batch"]:
    """The smallest number in the set; unspecified for the empty set."""
    return jnp.where(lo != 0, _trailing_zeros(lo), _trailing_zeros(hi) + word_bits)


@partial(jax.jit, static_argnames="word_bits")
def only(
    lo: UInt32[Array, "*batch"], hi: UInt32[Array, "*batch"], word_bits: int
) -> Int[Array, "*batch"]:
    """The only number in the set; -1 for the empty set, unspecified for larger sets."""
    in_hi = jnp.where(hi != 0, _trailing_zeros(hi) + word_bits, -1)
    return _materialized(jnp.where(lo != 0, _trailing_zeros(lo), in_hi))


@partial(jax.jit, static_argnames="word_bits")
def nth(
    lo: UInt32[Array, "*batch"],
    hi: UInt32[Array, "*batch"],
    word_bits: int,
    rank: Int[Array, "*batch"],
) -> Int[Array, "*batch"]:
    """The set's ``rank``-th number, from 0; the set must hold more than ``rank`` numbers."""
    in_lo = lax.population_count(lo).astype(jnp.int32)
    upper = rank >= in_lo
    word, rank = jnp.where(upper, hi, lo), jnp.where(upper, rank - in_lo, rank)
    return _materialized(nth_bit(word, rank) + jnp.where(upper, word_bits, 0))


def nth_bit(word: UInt32[Array, "*batch"], rank: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
    """The place of the word's ``rank``-th 1 bit, from 0, by binary search over popcounts."""
    index = jnp.zeros_like(rank)
    for width in (16, 8, 4, 2, 1):
        below = lax.population_count(word & ((1 << width) - 1)).astype(jnp.int32)
        above = rank >= below
        rank = jnp.where(above, rank - below, rank)
        index = jnp.where(above, index + width, index)
        word = jnp.where(above, word >> width, word)
    return index


def _materialized(number: Int[Array, "*batch"]) -> Int[Array, "*batch"]:
    """The number, on a CPU as a sum: XLA does not compute a sum again for each of its uses."""

    def as_sum(number: Array) -> Array:
        return total(jnp.where(np.arange(2) == 0, number[..., None], 0))

    return by_platform(as_sum, lambda number: number, number)


def _trailing_zeros(word: UInt32[Array, "*batch"]) -> Int[Array, "*batch"]:
    return lax.population_count(~word & (word - 1)).astype(jnp.int32)
