"""Walking and attacking; damage and kills, by attacks and programs."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix.rules import paths
from hackmatrix.rules.batching import materialize, stack_scalars, total
from hackmatrix.rules.entities import FREE, Entities, Occupied
from hackmatrix.rules.game import Game, replace
from hackmatrix.rules.planes import CELL_STEP, Plane, empty, neighbor_flags, single


def valid_moves(game: Game, enemies: Plane) -> Bool[Array, "4"]:
    """For each direction, whether the next cell exists and has no block, or has an enemy on it."""
    walkable = ~game.board.blocks | enemies
    there = game.player.cell + jnp.array(CELL_STEP, jnp.int32)
    return neighbor_flags(game.player.cell) & walkable.has(there)


class Moved(NamedTuple):
    """The result of a move."""

    game: Game
    kills: Int[Array, ""]  # destroyed entities that are rewarded
    walked: Bool[Array, ""]  # the player walked instead of attacking
    picked_up: Bool[Array, ""]  # the player picked up a data siphon


def move(
    game: Game, occupied: Occupied, direction: Int[Array, ""], condition: Bool[Array, ""]
) -> Moved:
    """Where the condition holds, attacks the entity seen in a direction or, if none, walks."""
    target = _target(game, occupied, direction)
    hit_transmission, hit_enemy = materialize(stack_scalars(target), game.steps < 0)
    attacks = condition & ((hit_transmission >= 0) | (hit_enemy >= 0))
    table = game.entities
    attacked = table.first(table.is_enemy & table.on(hit_enemy)) & attacks
    interrupted = table.is_transmission & table.on(hit_transmission) & attacks
    table = hurt(table, attacked, game.player.attack)
    table, kills = bury(table, interrupted, counted=interrupted)
    kills = materialize(kills, game.steps < 0)

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
    """Finds the entity that a move would attack.

    Returns:
        The cell of a transmission and that of an enemy; -1 for none. At least one of them is -1.
    """
    enemies, transmissions = occupied
    solid = enemies | transmissions | game.board.blocks
    line = empty()
    for number, ray in enumerate(paths.line(single(game.player.cell), solid)):
        line = ray.where(direction == number, line)
    return (line & transmissions).only(), (line & enemies & ~transmissions).only()


def hurt(table: Entities, hit: Bool[Array, " slots"], damage: Int[Array, ""]) -> Entities:
    """Takes hp from the enemies hit and stuns them; enemies at 0 hp stay on the table."""
    left = jnp.maximum(table.hp.astype(jnp.int32) - damage, 0).astype(jnp.int8)
    return replace(table, hp=jnp.where(hit, left, table.hp), stunned=table.stunned | hit)


def bury(
    table: Entities, gone: Bool[Array, " slots"], counted: Bool[Array, " slots"]
) -> tuple[Entities, Int[Array, ""]]:
    """Removes enemies without hp, and the entities in ``gone``.

    Returns:
        The table, and the number of rewarded kills. Enemies without hp and entities in ``counted``
        are rewarded unless the schedule brought them.
    """
    dead = table.is_enemy & (table.hp <= 0)
    kills = total((dead | counted) & ~table.from_task)
    return replace(table, kind=jnp.where(dead | gone, jnp.int8(FREE), table.kind)), kills
