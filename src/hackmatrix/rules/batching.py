"""Operations that compile to faster code than the plain operations, with the same results.

Rules are written for one game and batched by ``jax.vmap``.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Float, Int, Shaped, UInt

from ppo_mask.jax_tools import by_platform, one_for_all


def batch_max(value: Int[Array, ""]) -> Int[Array, ""]:
    """The largest value in the batch, as one number for all games; outside ``vmap``, the value.

    Loops use this number as their bound: if each game had its own bound, ``vmap`` would add a
    select to every iteration.
    """
    return one_for_all(largest, value)


def batch_any(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether any game of the batch has the flag, as one boolean for all games."""
    return batch_max(flag.astype(jnp.int32)) > 0


def materialize(value: Shaped[Array, "*n"], never: Bool[Array, ""]) -> Shaped[Array, "*n"]:
    """Computes the value once, and stores it in memory for all its uses.

    XLA's CPU compiler fuses an elementwise operation into each of its uses, so each use computes
    the operation again. The compiler does not fuse across a loop, so this function adds a loop that
    never runs. On accelerators, where a loop costs time, it adds an optimization barrier instead.

    Args:
        value: numbers, not flags.
        never: always False at run time, but not a constant to the compiler.
    """

    def loop(value: Array) -> Array:
        # One flag for the whole batch: with a flag for each game, the loop would need a select.
        start = one_for_all(lambda flags: flags[0], never), value
        return lax.while_loop(_again, _add_one, start)[1]

    return by_platform(loop, lax.optimization_barrier, value)


# At module level, as functions made in each call would be compiled in each call outside `jit`.
def _again(carry: tuple[Array, Array]) -> Array:
    return carry[0]


def _add_one(carry: tuple[Array, Array]) -> tuple[Array, Array]:
    return jnp.bool_(False), carry[1] + 1


# XLA's CPU compiler splits a reduction over more than 32 values into two reductions, and fuses
# neither of the two with its input. So a longer axis is first folded in half, elementwise, until it
# is short enough.
_LONGEST_AXIS = 32
# Each fold doubles the code, so an axis longer than this is reshaped to several short axes instead.
_LONGEST_FOLDED = 512


def _reduce(
    values: Shaped[Array, "*batch n"], combine: Callable[[Array, Array], Array], initial: Any
) -> Shaped[Array, "*batch"]:
    start = np.asarray(initial, values.dtype)

    def whole(values: Array) -> Array:
        return lax.reduce(values, start, combine, (values.ndim - 1,))

    def folded(values: Array) -> Array:
        folds = values.shape[-1] <= _LONGEST_FOLDED
        while folds and values.shape[-1] > _LONGEST_AXIS and values.shape[-1] % 2 == 0:
            half = values.shape[-1] // 2
            values = combine(values[..., :half], values[..., half:])
        axes = tuple(_short_axes(values.shape[-1]))
        values = values.reshape(*values.shape[:-1], *axes)
        return lax.reduce(
            values, start, combine, tuple(range(values.ndim - len(axes), values.ndim))
        )

    if values.shape[-1] <= _LONGEST_AXIS:
        return whole(values)
    return by_platform(folded, whole, values)


def _short_axes(size: int) -> list[int]:
    """Splits ``size`` into factors of at most ``_LONGEST_AXIS``, as far as that is possible."""
    axes: list[int] = []
    while size > _LONGEST_AXIS:
        divisors = (n for n in range(_LONGEST_AXIS, 1, -1) if size % n == 0)
        axes.append(next(divisors, size))
        size //= axes[-1]
    return [*axes, size]


def total(values: Shaped[Array, "*batch n"]) -> Int[Array, "*batch"]:
    """The sum over the last axis; for flags, how many are on."""
    # Sums 16-bit numbers, as vector units add twice as many of them at once as 32-bit numbers. Not
    # bytes, as XLA hands sums of bytes to a library, which needs its input in memory.
    few = values.dtype == bool and values.shape[-1] <= np.iinfo(np.int16).max
    return _reduce(values.astype(jnp.int16 if few else jnp.int32), lax.add, 0).astype(jnp.int32)


def anywhere(flags: Bool[Array, "*batch n"]) -> Bool[Array, "*batch"]:
    """Whether any flag along the last axis is on."""
    return _reduce(flags, lax.bitwise_or, False)


def smallest(values: Shaped[Array, "*batch n"]) -> Shaped[Array, "*batch"]:
    """The smallest integer along the last axis."""
    return _reduce(values, lax.min, jnp.iinfo(values.dtype).max)


def largest(values: Shaped[Array, "*batch n"]) -> Shaped[Array, "*batch"]:
    """The largest integer along the last axis."""
    return _reduce(values, lax.max, jnp.iinfo(values.dtype).min)


def join(words: Shaped[Array, "*batch n"]) -> Shaped[Array, "*batch"]:
    """Bitwise or of unsigned words or flags, over the last axis."""
    return _reduce(words, lax.bitwise_or, 0)


def looked_up(table: Sequence[float], index: Int[Array, ""]) -> Float[Array, ""]:
    """Computes ``table[index]`` with selects; the table's length must be a power of two.

    XLA's CPU compiler does not vectorize operations fused with a lookup in memory.
    """
    values = [jnp.float32(entry) for entry in table]
    bit = 1
    while len(values) > 1:
        odd = (index & bit) != 0
        pairs = zip(values[::2], values[1::2], strict=True)
        values = [jnp.where(odd, second, first) for first, second in pairs]
        bit *= 2
    return values[0]


def join_in_pairs(words: Sequence[UInt[Array, "*n"]]) -> UInt[Array, "*n"]:
    """Bitwise or of all words, elementwise.

    The operations form a tree, as XLA's passes simplify only one operation of a chain at a time.
    """
    while len(words) > 1:
        words = [reduce(lax.bitwise_or, words[i : i + 2]) for i in range(0, len(words), 2)]
    return words[0]


def stack_scalars(values: Sequence[Shaped[Array, ""]]) -> Shaped[Array, " n"]:
    """``jnp.stack`` for a few numbers that are cheap to compute.

    XLA's CPU compiler makes a kernel for each argument of ``jnp.stack``, but a single kernel for
    this function.
    """
    return with_entries(jnp.broadcast_to(values[0], len(values)), enumerate(values))


def with_entries(
    row: Shaped[Array, " n"], entries: Iterable[tuple[int, Shaped[Array, ""]]]
) -> Shaped[Array, " n"]:
    """The row with some entries replaced; ``entries`` are pairs of an index and a value."""
    index = np.arange(row.shape[0])
    for place, entry in entries:
        row = jnp.where(index == place, entry, row)
    return row
