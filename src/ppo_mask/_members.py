"""The arrays of a batch, read and written a few members at a time."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Shaped, UInt32


class Members(eqx.Module):
    """Arrays with a leading batch axis, the one-number-a-member ones joined to one array.

    A state has dozens of such numbers. Side by side they are read and written by one operation
    instead of dozens, which a compiler is quicker with and a CPU as well.

    Attributes:
        words: the numbers of 32 bits and the flags, a row each.
        others: all other arrays.
        joined: for each array, its dtype if it is in ``words``, else None.
    """

    words: UInt32[Array, "numbers batch"]
    others: list[Shaped[Array, "batch ..."]]
    joined: tuple[Any, ...] = eqx.field(static=True)

    def __init__(self, arrays: list[Array]):
        self.joined = tuple(x.dtype if _joins(x) else None for x in arrays)
        words = [_to_word(x) for x in arrays if _joins(x)]
        self.words = jnp.stack(words) if words else jnp.zeros((0, arrays[0].shape[0]), jnp.uint32)
        self.others = [x for x in arrays if not _joins(x)]

    def arrays(self) -> list[Array]:
        """The arrays as they were given."""
        words, others = iter(self.words), iter(self.others)
        return [
            next(others) if dtype is None else _from_word(next(words), dtype)
            for dtype in self.joined
        ]

    def take(self, rows: UInt32[Array, " rows"]) -> list[Array]:
        """The arrays of some members; an index past the end gives the last one."""
        words = self.words.at[:, rows].get(mode="clip")
        others = [x.at[rows].get(mode="clip") for x in self.others]
        return eqx.tree_at(lambda m: (m.words, m.others), self, (words, others)).arrays()

    def write(self, rows: UInt32[Array, " rows"], new: list[Array]) -> "Members":
        """With new values for some members; an index past the end writes nothing.

        Args:
            rows: which; those past the end come last.
            new: the arrays of those members.
        """
        old, put = (self.words, self.others), Members(new)
        written = jax.lax.platform_dependent(
            old, (put.words, put.others), rows, cpu=_write_one_by_one, default=_scatter
        )
        return eqx.tree_at(lambda m: (m.words, m.others), self, written)


def _joins(x: Array) -> bool:
    """Whether an array holds one number of 32 bits, or one flag, for each member."""
    if x.ndim != 1 or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return False
    return x.dtype == jnp.bool_ or x.dtype.itemsize == 4


def _to_word(x: Array) -> Array:
    if x.dtype == jnp.bool_:
        return x.astype(jnp.uint32)
    return jax.lax.bitcast_convert_type(x, jnp.uint32)


def _from_word(word: Array, dtype: Any) -> Array:
    return word != 0 if dtype == jnp.bool_ else jax.lax.bitcast_convert_type(word, dtype)


def _scatter(old: Any, new: Any, rows: Array) -> Any:
    (words, others), (new_words, new_others) = old, new
    words = words.at[:, rows].set(new_words, mode="drop")
    pairs = zip(others, new_others, strict=True)
    return words, [x.at[rows].set(y, mode="drop") for x, y in pairs]


def _write_one_by_one(old: Any, new: Any, rows: Array) -> Any:
    """The same as :func:`_scatter`, but only as many writes as there are rows to write.

    A CPU runs a scatter as a loop over all rows, one such loop for each array of the tree.
    """
    new_words, new_others = new
    batch = old[0].shape[1]

    def put(x: Array, y: Array, i: Array, row: Array, axis: int) -> Array:
        one = jax.lax.dynamic_index_in_dim(y, i, axis)
        return jax.lax.dynamic_update_slice_in_dim(x, one, row, axis)

    def write(i: Array, old: Any) -> Any:
        words, others = old
        row = rows[i]
        pairs = zip(others, new_others, strict=True)
        return put(words, new_words, i, row, 1), [put(x, y, i, row, 0) for x, y in pairs]

    # Unsigned numbers: no code for negative indices.
    return jax.lax.fori_loop(jnp.uint32(0), jnp.sum(rows < batch, dtype=jnp.uint32), write, old)
