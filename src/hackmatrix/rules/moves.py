"""Walking and attacking."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix.rules import harm, paths
from hackmatrix.rules.batching import computed_once, side_by_side
from hackmatrix.rules.entities import Occupied
from hackmatrix.rules.game import Game, replace
from hackmatrix.rules.planes import CELL_STEP, Plane, empty, neighbor_flags, single


def valid_moves(game: Game, enemies: Plane) -> Bool[Array, "4"]:
    """Whether each direction's next cell is on the board and no block, or an enemy is on it."""
    walkable = ~game.board.blocks | enemies
    there = game.player.cell + jnp.array(CELL_STEP, jnp.int32)
    return neighbor_flags(game.player.cell) & walkable.has(there)


class Moved(NamedTuple):
    """What a move led to."""

    game: Game
    kills: Int[Array, ""]  # that count
    walked: Bool[Array, ""]  # the player did not attack but walk
    picked_up: Bool[Array, ""]  # it walked onto a data siphon


def move(
    game: Game, occupied: Occupied, direction: Int[Array, ""], condition: Bool[Array, ""]
) -> Moved:
    """The player attacks whom it sees in a direction, or else walks there, where the condition
    holds."""
    target = _target(game, occupied, direction)
    hit_transmission, hit_enemy = computed_once(side_by_side(target), game.steps < 0)
    attacks = condition & ((hit_transmission >= 0) | (hit_enemy >= 0))
    table = game.entities
    attacked = table.first(table.is_enemy & table.on(hit_enemy)) & attacks
    interrupted = table.is_transmission & table.on(hit_transmission) & attacks
    table = harm.hurt(table, attacked, game.player.attack)
    table, kills = harm.bury(table, interrupted, counted=interrupted)
    kills = computed_once(kills, game.steps < 0)

    walks = condition & ~attacks
    beside = game.player.cell + jnp.array(CELL_STEP, jnp.int32)[direction]
    cell = jnp.where(walks, beside, game.player.cell)
    picked_up = walks & game.board.pickups.has(cell)
    player = replace(game.player, cell=cell, data_siphons=game.player.data_siphons + picked_up)
    pickups = game.board.pickups & ~single(cell).where(picked_up)
    board = replace(game.board, pickups=pickups)
    game = replace(game, entities=table, board=board, player=player)
    return Moved(game, kills, walks, picked_up)


def _target(
    game: Game, occupied: Occupied, direction: Int[Array, ""]
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Whom a move hits: a cell with a transmission, or else one with an enemy, or else none.

    Returns:
        The transmission's cell and the enemy's cell; at least one of the two is -1, none.
    """
    enemies, transmissions = occupied
    solid = enemies | transmissions | game.board.blocks
    line = empty()
    for number, ray in enumerate(paths.line(single(game.player.cell), solid)):
        line = ray.where(direction == number, line)
    return (line & transmissions).only(), (line & enemies & ~transmissions).only()
