"""Walking and attacking."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix import paths
from hackmatrix.game import Game
from hackmatrix.planes import CELL_STEP, Plane, computed_once, empty, single


def valid_moves(game: Game, enemies: Plane) -> Bool[Array, "4"]:
    """Whether each direction's next cell is on the board and no block, or an enemy is on it."""
    walkable = ~game.board.blocks | enemies
    there = game.player.cell + jnp.array(CELL_STEP, jnp.int32)
    return paths.neighbour_flags(game.player.cell) & walkable.has(there)


def target(game: Game, direction: Int[Array, ""]) -> tuple[Plane, Plane]:
    """Whom a move hits: a cell with a transmission, or else one with an enemy, or else none.

    Returns:
        The transmission's cell and the enemy's cell; at most one of the two sets holds a cell.
    """
    enemies, transmissions = game.entities.occupied()
    solid = enemies | transmissions | game.board.blocks
    seen = empty()
    for number, ray in enumerate(paths.line(single(game.player.cell), solid)):
        seen = ray.where(direction == number, seen)
    hit_transmission, hit_enemy = computed_once(
        [seen & transmissions, seen & enemies & ~transmissions], game.steps < 0
    )
    return hit_transmission, hit_enemy


def next_cell(game: Game, direction: Int[Array, ""]) -> Int[Array, ""]:
    """The cell one step away, which must be on the board."""
    step = jnp.array(CELL_STEP, jnp.int32)
    return game.player.cell + step[direction]
