"""Walking and attacking."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix import paths
from hackmatrix.planes import CELL_STEP, Plane, empty, single
from hackmatrix.state import State


def valid_moves(state: State, enemies: Plane) -> Bool[Array, "4"]:
    """Whether each direction's next cell is on the board and no block, or an enemy is on it."""
    walkable = ~state.board.blocks | enemies
    there = state.player.cell + jnp.array(CELL_STEP, jnp.int32)
    return paths.neighbour_flags(state.player.cell) & walkable.has(there)


def target(state: State, direction: Int[Array, ""]) -> tuple[Plane, Plane]:
    """Whom a move hits: a cell with a transmission, or else one with an enemy, or else none.

    Returns:
        The transmission's cell and the enemy's cell; at most one of the two sets holds a cell.
    """
    enemies, transmissions = state.entities.occupied()
    solid = enemies | transmissions | state.board.blocks
    seen = empty()
    for number, ray in enumerate(paths.line(single(state.player.cell), solid)):
        seen = ray.where(direction == number, seen)
    hit_transmission = seen & transmissions
    hit_enemy = seen & enemies & ~transmissions
    return hit_transmission, hit_enemy


def next_cell(state: State, direction: Int[Array, ""]) -> Int[Array, ""]:
    """The cell one step away, which must be on the board."""
    step = jnp.array(CELL_STEP, jnp.int32)
    return state.player.cell + step[direction]
