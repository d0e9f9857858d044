"""Ways and lines over the grid, as floods of bit planes.

A breadth-first search grows a set of cells by its neighbours until it meets its goal.
"""

from collections.abc import Callable
from typing import TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int

from hackmatrix.batching import smallest
from hackmatrix.planes import (
    CELL_STEP,
    COL_STEP,
    NUM_DIRECTIONS,
    ROW_STEP,
    SIZE,
    Plane,
    single,
)

# A shortest path has no shortcut: it is an induced path, and on a 6×6 grid those have at most 24
# cells (OEIS A331968), of which a flood already holds the first.
_MAX_GROWTH = 23
# Growth steps written out in one turn of the loop: measured best for batches of 64 to 2,048.
_UNROLLED = 4

Carry = TypeVar("Carry")


def _grow(step: Callable[[Carry], Carry], start: Carry) -> Carry:
    """Runs a flood's growth step often enough for every path there can be."""

    def some_steps(number: Array, carry: Carry) -> Carry:
        del number
        for _ in range(_UNROLLED):
            carry = step(carry)
        return carry

    return lax.fori_loop(0, -(-_MAX_GROWTH // _UNROLLED), some_steps, start)


def first_met(start: Plane, free: Plane, goal: Plane) -> tuple[Plane, Int[Array, ""]]:
    """Floods from ``start`` over ``free`` cells until it meets ``goal``.

    Returns:
        The cells of the goal that are met first (none if the flood never gets there), and the steps
        it took to get there.
    """

    def step(carry: tuple[Plane, Array]) -> tuple[Plane, Array]:
        reached, steps = carry
        searching = ~(reached & goal).any()
        return reached | (reached.neighbours() & free).where(searching), steps + searching

    reached, steps = _grow(step, (start, jnp.int32(0)))
    return reached & goal, steps


def connected(start: Plane, free: Plane) -> Plane:
    """All cells that can be reached from ``start`` over ``free`` cells."""
    return _grow(lambda reached: reached | (reached.neighbours() & free), start)


def exit_distance(blocks: Plane, cell: Int[Array, ""], exit: Int[Array, ""]) -> Int[Array, ""]:
    """Steps of the shortest walk to the exit that enters no block; 0 if there is none."""
    met, steps = first_met(single(exit), ~blocks, single(cell).neighbours())
    return jnp.where(met.any() & (cell != exit), steps + 1, 0)


def manhattan(a: Int[Array, "*#n"], b: Int[Array, "*#n"]) -> Int[Array, "*n"]:
    """The distance of two cells in steps, blocks not counted."""
    return jnp.abs(a // SIZE - b // SIZE) + jnp.abs(a % SIZE - b % SIZE)


@jax.jit
def line(cell: Plane, opaque: Plane) -> tuple[Plane, ...]:
    """What is seen up, down, left and right of a cell: up to the first opaque cell, it included."""
    seen: list[Plane] = []
    for move in (Plane.up, Plane.down, Plane.left, Plane.right):
        front, ray = cell, cell & ~cell
        for _ in range(SIZE - 1):
            front = move(front)
            ray = ray | front
            front = front & ~opaque
        seen.append(ray)
    return tuple(seen)


def first_neighbour(cell: Int[Array, ""], options: Plane) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The first of a cell's neighbours, in the order up, down, left, right, that is an option.

    Returns:
        That neighbour and True; the cell itself and False if none is.
    """
    step = jnp.array(CELL_STEP, jnp.int32)
    possible = neighbour_flags(cell) & options.has(cell + step)
    direction = smallest(jnp.where(possible, jnp.arange(NUM_DIRECTIONS), NUM_DIRECTIONS))
    steps = jnp.array((*CELL_STEP, 0), jnp.int32)
    return cell + steps[direction], direction < NUM_DIRECTIONS


def neighbour_flags(cell: Int[Array, ""]) -> Bool[Array, "directions"]:
    """Whether the board goes on up, down, left and right of a cell."""
    row = cell // SIZE + jnp.array(ROW_STEP)
    col = cell % SIZE + jnp.array(COL_STEP)
    return (row >= 0) & (row < SIZE) & (col >= 0) & (col < SIZE)
