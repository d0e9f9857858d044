"""Shortest paths and lines of sight on the grid, computed by flooding bit planes.

A flood is a breadth-first search: it keeps a set of cells, and each step adds their neighbors.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Int, Int8

from hackmatrix.rules import one_kernel
from hackmatrix.rules.batching import batch_max, repeat
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane, empty, row_and_col, single
from ppo_mask.jax_tools import by_platform

Flood = TypeVar("Flood")

# An accelerator takes this many steps before it checks whether the flood still grows. Few paths are
# longer.
_AT_ONCE = 12


def _grow(
    turn: Callable[[int, Flood], tuple[Flood, Plane]],
    start: Flood,
    while_loop: Callable[..., Any] = lax.while_loop,
) -> Flood:
    """Takes steps in a flood until no flood of the batch grows any more.

    Args:
        turn: takes the given number of steps in the given flood; returns the flood and the cells
            that only the last step reached. Once a step reaches no new cell, the flood is complete.
        start: the flood before the first step.
        while_loop: JAX's loop or, for small batches,
            :func:`hackmatrix.rules.one_kernel.while_loop`.
    """

    steps = by_platform(lambda: 1, lambda: _AT_ONCE)

    def grown(carry: tuple[Array, Flood]) -> tuple[Array, Flood]:
        flood, new = turn(steps, carry[1])
        return batch_max(new.any().astype(jnp.int32)), flood

    return while_loop(lambda carry: carry[0] > 0, grown, (jnp.int32(1), start))[1]


def first_met(start: Plane, free: Plane, goal: Plane) -> tuple[Plane, Int[Array, ""]]:
    """Floods from ``start`` over ``free`` cells until the flood meets ``goal``.

    Returns:
        The cells of the goal that the flood meets first, and the number of steps; no cell and 0 if
        the flood never meets the goal.
    """

    def step(flood: tuple[Plane, Array]) -> tuple[Plane, Array]:
        reached, steps = flood
        searching = ~(reached & goal).any()
        return reached | (reached.neighbors() & free).where(searching), steps + searching

    def turn(steps: int, flood: tuple[Plane, Array]) -> tuple[tuple[Plane, Array], Plane]:
        before = repeat(steps - 1, step, flood)
        flood = step(before)
        return flood, flood[0] & ~before[0]

    reached, steps = _grow(turn, (start, jnp.int32(0)))
    met = reached & goal
    return met, jnp.where(met.any(), steps, 0)


def reach(start: Plane, free: Plane) -> Plane:
    """All cells that can be reached from ``start`` over ``free`` cells."""

    def step(reached: Plane) -> Plane:
        return reached | (reached.neighbors() & free)

    def turn(steps: int, reached: Plane) -> tuple[Plane, Plane]:
        before = repeat(steps - 1, step, reached)
        reached = step(before)
        return reached, reached & ~before

    return _grow(turn, start)


def exit_steps(blocks: Plane, exit: Int[Array, ""]) -> Int8[Array, "cells"]:
    """For each cell, the length of a shortest walk to the exit around all blocks.

    The walk may begin on a block. The length is 0 for the exit and for cells without a walk.
    """
    start, free = single(exit), ~blocks

    def turn(
        steps: int, flood: tuple[Plane, Array, Array]
    ) -> tuple[tuple[Plane, Array, Array], Plane]:
        reached, walked, exit_steps = flood
        new, digits = empty(), [empty()] * steps.bit_length()
        for number in range(1, steps + 1):
            new = (start | (reached & free)).neighbors() & ~reached
            reached = reached | new
            # One plane for each binary digit of the step in which a cell was reached.
            digits = [d | new if number >> place & 1 else d for place, d in enumerate(digits)]
        in_turn = [jnp.where(d.flags(), jnp.int8(1 << i), 0) for i, d in enumerate(digits)]
        number = sum(in_turn[1:], in_turn[0])
        exit_steps = jnp.where(number > 0, walked + number, exit_steps)
        return (reached, walked + jnp.int8(steps), exit_steps), new

    start_of_all = start, jnp.int8(0), jnp.zeros(NUM_CELLS, jnp.int8)
    return _grow(turn, start_of_all, one_kernel.while_loop)[2]


def manhattan(a: Int[Array, "*#n"], b: Int[Array, "*#n"]) -> Int[Array, "*n"]:
    """The steps between two cells, as if there were no blocks."""
    (a_row, a_col), (b_row, b_col) = row_and_col(a), row_and_col(b)
    return jnp.abs(a_row - b_row) + jnp.abs(a_col - b_col)


@jax.jit
def line(cell: Plane, opaque: Plane) -> tuple[Plane, ...]:
    """The cells seen in each direction (up, down, left, right), and the first opaque cell there."""
    rays: list[Plane] = []
    for move in (Plane.up, Plane.down, Plane.left, Plane.right):
        front, ray = cell, cell & ~cell
        for _ in range(SIZE - 1):
            front = move(front)
            ray = ray | front
            front = front & ~opaque
        rays.append(ray)
    return tuple(rays)


def first_neighbor(cell: Plane, options: Plane) -> Plane:
    """The first neighbor of a cell, in the order up, down, left, right, that is in ``options``.

    ``cell`` and the result are sets; the result is empty if no neighbor is in ``options``.
    """
    first = empty()
    for neighbor in reversed(cell.shifts()):
        option = neighbor & options
        first = option.where(option.any(), first)
    return first
