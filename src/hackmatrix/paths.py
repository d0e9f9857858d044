"""Ways and lines over the grid, as floods of bit planes.

A breadth-first search grows a set of cells by its neighbours until it meets its goal. All growth
steps are written out: they are a few bit operations each, and a loop would cost more than it saves.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix.planes import COL_STEP, NUM_DIRECTIONS, ROW_STEP, SIZE, Plane, single

# A shortest path has no shortcut: it is an induced path, and on a 6×6 grid those have at most 24
# cells (OEIS A331968), of which a flood already holds the first.
_MAX_GROWTH = 23


def first_met(start: Plane, free: Plane, goal: Plane) -> tuple[Plane, Int[Array, ""]]:
    """Floods from ``start`` over ``free`` cells until it meets ``goal``.

    Returns:
        The cells of the goal that are met first (none if the flood never gets there), and the steps
        it took.
    """
    reached, steps = start, jnp.int32(0)
    for _ in range(_MAX_GROWTH):
        searching = ~(reached & goal).any()
        reached = reached | (reached.neighbours() & free).where(searching)
        steps = steps + searching
    return reached & goal, steps


def connected(start: Plane, free: Plane) -> Plane:
    """All cells that can be reached from ``start`` over ``free`` cells."""
    reached = start
    for _ in range(_MAX_GROWTH):
        reached = reached | (reached.neighbours() & free)
    return reached


def exit_distance(blocks: Plane, cell: Int[Array, ""], exit: Int[Array, ""]) -> Int[Array, ""]:
    """Steps of the shortest walk to the exit that enters no block; 0 if there is none."""
    met, steps = first_met(single(exit), ~blocks, single(cell).neighbours())
    return jnp.where(met.any() & (cell != exit), steps + 1, 0)


def manhattan(a: Int[Array, "*#n"], b: Int[Array, "*#n"]) -> Int[Array, "*n"]:
    """The distance of two cells in steps, blocks not counted."""
    return jnp.abs(a // SIZE - b // SIZE) + jnp.abs(a % SIZE - b % SIZE)


def line(cell: Plane, opaque: Plane) -> tuple[Plane, Plane, Plane, Plane]:
    """What is seen up, down, left and right of a cell: up to the first opaque cell, it included."""
    seen = []
    for direction in range(NUM_DIRECTIONS):
        front, ray = cell, cell & ~cell
        for _ in range(SIZE - 1):
            front = front.shifts()[direction]
            ray = ray | front
            front = front & ~opaque
        seen.append(ray)
    return tuple(seen)


def first_direction(options: Plane, cell: Int[Array, ""]) -> tuple[Int[Array, ""], Bool[Array, ""]]:
    """The neighbour of a cell that is in ``options``, first of up, down, left, right.

    Returns:
        That neighbour and True; the cell itself and False if no neighbour is in ``options``.
    """
    origin = single(cell)
    target, found = cell, jnp.bool_(False)
    for direction in reversed(range(NUM_DIRECTIONS)):
        there = (origin.shifts()[direction] & options).any()
        step = SIZE * ROW_STEP[direction] + COL_STEP[direction]
        target = jnp.where(there, cell + step, target)
        found = found | there
    return target, found
