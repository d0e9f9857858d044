"""Shortest paths and lines of sight on the grid, computed by flooding bit planes.

A flood is a breadth-first search: it keeps a set of cells, and each step adds their neighbors.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Int8

from hackmatrix.rules import one_kernel
from hackmatrix.rules.batching import batch_any
from hackmatrix.rules.planes import SIZE, Plane, empty, row_and_col, single
from ppo_mask.jax_tools import by_platform

Flood = TypeVar("Flood", bound=tuple[Any, ...])

# A shortest path has no shortcut. The longest path without one on this grid has 24 cells
# (https://oeis.org/A331968).
_MOST_STEPS = 23


def _flood(
    step: Callable[[Flood], Flood], start: Flood, while_loop: Callable[..., Any] = lax.while_loop
) -> Flood:
    """Takes steps in a flood until no flood of the batch grows any more.

    An accelerator takes as many steps as the longest path has, without a loop, so that they become
    one kernel.

    Args:
        step: maps a flood, whose first part is the cells reached, to the grown flood. Steps after
            the last growth must not matter.
        start: the flood before the first step.
        while_loop: JAX's loop or, for small batches,
            :func:`hackmatrix.rules.one_kernel.while_loop`.
    """

    def while_it_grows(start: Flood) -> Flood:
        def grown(carry: tuple[Bool[Array, ""], Flood]) -> tuple[Bool[Array, ""], Flood]:
            flood = step(carry[1])
            return batch_any((flood[0] & ~carry[1][0]).any()), flood

        return while_loop(lambda carry: carry[0], grown, (jnp.bool_(True), start))[1]

    def unrolled(flood: Flood) -> Flood:
        for _ in range(_MOST_STEPS):
            flood = step(flood)
        return flood

    return by_platform(while_it_grows, unrolled, start)


def first_met(start: Plane, free: Plane, goal: Plane) -> tuple[Plane, Int[Array, ""]]:
    """Floods from ``start`` over ``free`` cells until it meets ``goal``.

    Returns:
        The goal's cells that the flood meets first, and after how many steps; no cell and 0 if the
        flood never meets the goal.
    """

    def step(flood: tuple[Plane, Array]) -> tuple[Plane, Array]:
        reached, steps = flood
        searching = ~(reached & goal).any()
        return reached | (reached.neighbors() & free).where(searching), steps + searching

    reached, steps = _flood(step, (start, jnp.int32(0)))
    met = reached & goal
    return met, jnp.where(met.any(), steps, 0)


def reach(start: Plane, free: Plane) -> Plane:
    """All cells that can be reached from ``start`` over ``free`` cells."""

    def step(flood: tuple[Plane]) -> tuple[Plane]:
        (reached,) = flood
        return (reached | (reached.neighbors() & free),)

    return _flood(step, (start,))[0]


def exit_steps(blocks: Plane, exit: Int[Array, ""]) -> Int8[Array, "cells"]:
    """For each cell, the steps of a shortest walk to the exit around all blocks; 0 without a walk.

    The walk may begin on a block.
    """
    start, free = single(exit), ~blocks

    def step(flood: tuple[Plane, Array, list[Plane]]) -> tuple[Plane, Array, list[Plane]]:
        reached, number, digits = flood
        new = (start | (reached & free)).neighbors() & ~reached
        number = number + 1
        # One plane for each binary digit of the step in which a cell was reached.
        on = (number & (1 << place) != 0 for place in range(len(digits)))
        digits = [digit | new.where(is_on) for digit, is_on in zip(digits, on, strict=True)]
        return reached | new, number, digits

    none = [empty()] * _MOST_STEPS.bit_length()
    _, _, digits = _flood(step, (start, jnp.int32(0), none), one_kernel.while_loop)
    return reduce(or_, (d.flags().astype(jnp.int8) << i for i, d in enumerate(digits)))


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
