"""Sets of cells as bits.

The grid's 36 cells are numbered ``6 * row + col``. A :class:`Plane` is a set of cells: two
``uint32``, with 18 bits (three rows) in each. Union, intersection and the neighbors of a whole set
are a few bit operations, which vector units do for many environments at once.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, Integer, UInt32

from hackmatrix.rules import bits

SIZE = 6
NUM_CELLS = SIZE * SIZE
# Directions, in the order in which the rules try them: up (row + 1), down, left, right.
NUM_DIRECTIONS = 4
ROW_STEP, COL_STEP = (1, -1, 0, 0), (0, 0, -1, 1)
CELL_STEP = (SIZE, -SIZE, -1, 1)

_WORD_BITS = 18
_FULL = (1 << _WORD_BITS) - 1
_LEFT_COLUMN = 0b000001_000001_000001
_RIGHT_COLUMN = 0b100000_100000_100000


def _words(cells: Iterable[int]) -> tuple[int, int]:
    bits = sum(1 << cell for cell in cells)
    return bits & _FULL, bits >> _WORD_BITS


def _words_of_each(sets: Sequence[Iterable[int]]) -> np.ndarray:
    """The sets' lower words, then their upper words."""
    return np.array([_words(cells) for cells in sets], np.uint32).T


_BITS = _words_of_each([[cell] for cell in range(NUM_CELLS)])


class Plane(NamedTuple):
    """A set of cells, or a batch of sets; ``lo`` holds rows 0 to 2, ``hi`` rows 3 to 5."""

    lo: UInt32[Array, "*batch"]
    hi: UInt32[Array, "*batch"]

    def __and__(self, other: "Plane") -> "Plane":
        return Plane(self.lo & other.lo, self.hi & other.hi)

    def __or__(self, other: "Plane") -> "Plane":
        return Plane(self.lo | other.lo, self.hi | other.hi)

    def __invert__(self) -> "Plane":
        return Plane(self.lo ^ _FULL, self.hi ^ _FULL)

    def where(self, condition: Bool[Array, "*batch"], otherwise: "Plane | None" = None) -> "Plane":
        """This set where the condition holds, else ``otherwise`` (by default the empty set)."""
        lo, hi = (jnp.uint32(0), jnp.uint32(0)) if otherwise is None else otherwise
        return Plane(jnp.where(condition, self.lo, lo), jnp.where(condition, self.hi, hi))

    def any(self) -> Bool[Array, "*batch"]:
        """Whether the set holds a cell."""
        return (self.lo | self.hi) != 0

    def size(self) -> Int[Array, "*batch"]:
        """How many cells the set holds."""
        return (lax.population_count(self.lo) + lax.population_count(self.hi)).astype(jnp.int32)

    def has(self, cell: Integer[Array, "*cells"]) -> Bool[Array, "*cells"]:
        """For each cell, whether this set (unbatched) holds it."""
        return bits.has(self.lo, self.hi, _WORD_BITS, cell)

    def up(self) -> "Plane":
        """Every cell moved one row up; cells that leave the grid are dropped."""
        return Plane((self.lo << 6) & _FULL, ((self.hi << 6) & _FULL) | (self.lo >> 12))

    def down(self) -> "Plane":
        """Every cell moved one row down."""
        return Plane((self.lo >> 6) | ((self.hi << 12) & _FULL), self.hi >> 6)

    def left(self) -> "Plane":
        """Every cell moved one column left."""
        keep = _FULL ^ _LEFT_COLUMN
        return Plane((self.lo & keep) >> 1, (self.hi & keep) >> 1)

    def right(self) -> "Plane":
        """Every cell moved one column right."""
        keep = _FULL ^ _RIGHT_COLUMN
        return Plane((self.lo & keep) << 1, (self.hi & keep) << 1)

    @jax.jit
    def shifts(self) -> tuple["Plane", "Plane", "Plane", "Plane"]:
        """The set moved up, down, left and right."""
        return self.up(), self.down(), self.left(), self.right()

    @jax.jit
    def neighbors(self) -> "Plane":
        """The cells orthogonally next to a cell of the set."""
        up, down, left, right = self.shifts()
        return up | down | left | right

    @jax.jit
    def around(self) -> "Plane":
        """The cells next to a cell of the set, diagonally too, without the set's own cells."""
        wide = self | self.left() | self.right()
        return (wide | wide.up() | wide.down()) & ~self

    def lowest(self) -> Int[Array, "*batch"]:
        """The smallest cell of the set; unspecified for the empty set."""
        return bits.lowest(self.lo, self.hi, _WORD_BITS)

    def only(self) -> Int[Array, "*batch"]:
        """The only cell of the set; -1 for the empty set, unspecified for larger sets."""
        return bits.only(self.lo, self.hi, _WORD_BITS)

    def nth(self, rank: Integer[Array, "*batch"]) -> Int[Array, "*batch"]:
        """The set's ``rank``-th cell, from 0; the set must hold more than ``rank`` cells."""
        return bits.nth(self.lo, self.hi, _WORD_BITS, rank)

    @jax.jit
    def flags(self) -> Bool[Array, "*batch 36"]:
        """One flag for each cell, in order."""
        lo, hi = _BITS
        return ((self.lo[..., None] & lo) | (self.hi[..., None] & hi)) != 0


def empty() -> Plane:
    """No cell."""
    return Plane(jnp.uint32(0), jnp.uint32(0))


def single(cell: Integer[Array, "*batch"]) -> Plane:
    """The set that holds only ``cell``."""
    return Plane(*bits.single(cell, _WORD_BITS))


def pack(flags: Bool[Array, "*batch 36"]) -> Plane:
    """The set of the cells whose flag is on."""
    return Plane(*bits.pack(flags, _WORD_BITS))


def union(cells: Integer[Array, " n"], members: Bool[Array, "*sets n"]) -> Plane:
    """For each row of ``members``, the set of the cells that the row flags."""
    return Plane(*bits.union(cells, members, _WORD_BITS))


def constant(cells: "list[int] | range | set[int]") -> Plane:
    """A constant set."""
    return Plane(*map(jnp.uint32, _words(cells)))


def before_each() -> Plane:
    """For each cell, the set of cells with smaller numbers."""
    return Plane(*map(jnp.array, _words_of_each([range(cell) for cell in range(NUM_CELLS)])))


def reach_of_each() -> Plane:
    """For each cell, the set of that cell and its orthogonal neighbors."""
    rows_and_cols = [divmod(cell, SIZE) for cell in range(NUM_CELLS)]
    reach = [
        [cell for cell, (r, c) in enumerate(rows_and_cols) if abs(r - row) + abs(c - col) < 2]
        for row, col in rows_and_cols
    ]
    return Plane(*map(jnp.array, _words_of_each(reach)))


@jax.jit
def row(index: Integer[Array, ""]) -> Plane:
    """The cells of a row."""
    return Plane(*bits.shift(0b111111, SIZE * index, _WORD_BITS))


@jax.jit
def column(index: Integer[Array, ""]) -> Plane:
    """The cells of a column."""
    bits = jnp.uint32(_LEFT_COLUMN) << index.astype(jnp.uint32)
    return Plane(bits, bits)


def row_and_col(
    cell: Integer[Array, "*cells"],
) -> tuple[Integer[Array, "*cells"], Integer[Array, "*cells"]]:
    """A cell's row and column, in the cell's dtype; unspecified for numbers beyond the grid."""
    # A product, as vector units have no integer division.
    sixth = (cell.astype(jnp.int16) * jnp.int16(43)) >> 8
    row = sixth.astype(cell.dtype)
    return row, cell - SIZE * row


def neighbor_flags(cell: Int[Array, ""]) -> Bool[Array, "directions"]:
    """For each direction (up, down, left, right), whether a cell has a neighbor there."""
    row, col = row_and_col(cell)
    row, col = row + jnp.array(ROW_STEP), col + jnp.array(COL_STEP)
    return (row >= 0) & (row < SIZE) & (col >= 0) & (col < SIZE)
