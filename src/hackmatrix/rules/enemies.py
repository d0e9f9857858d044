"""The enemy turn."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int8

from hackmatrix.rules import one_kernel, paths
from hackmatrix.rules.batching import anywhere, materialize, total
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import (
    ENEMY,
    GLITCH,
    MAX_ARRIVALS,
    MAX_ENTITIES,
    VIRUS,
    Entities,
    Slots,
    arrival_order,
    full_hp,
    no_slots,
    slot_set,
)
from hackmatrix.rules.game import MAX_TURNS, Game, replace
from hackmatrix.rules.planes import NUM_CELLS, Plane, constant, row_and_col, single
from ppo_mask.jax_tools import by_platform, rarely

_SUM_BITS = 8


def enemy_turn(game: Game, draws: Draws) -> Game:
    """Plays an enemy turn.

    The caller handles STEP before the enemy turn, and spawns and the history after it.
    """
    game = replace(game, turn=jnp.minimum(game.turn, MAX_TURNS - 1) + 1)
    game = _arrive(game)
    game = _act(game, draws)
    table = game.entities
    table = replace(
        table, disabled=jnp.maximum(table.disabled - 1, 0), stunned=jnp.zeros_like(table.stunned)
    )
    return replace(game, entities=table)


def _arrive(game: Game) -> Game:
    """Counts transmissions down; those that are due become enemies, last in list order."""
    table = game.entities
    due = table.is_transmission & (table.turns <= 1)
    arrivals = jnp.minimum(game.arrivals + anywhere(due), MAX_ARRIVALS)
    table = replace(
        table,
        # Materialized, or each word of the planes made from `kind` would recompute it.
        kind=materialize(jnp.where(due, jnp.int8(ENEMY), table.kind), game.turn < 0),
        hp=jnp.where(due, full_hp(table.type), table.hp),
        disabled=jnp.where(due, jnp.int8(1), table.disabled),
        stunned=table.stunned & ~due,
        turns=table.turns - table.is_transmission,
        order=jnp.where(due, arrival_order(arrivals, table.order), table.order),
    )
    return replace(game, entities=table, arrivals=arrivals)


class _Start(NamedTuple):
    """The position after the enemies next to the player have attacked, before the others move."""

    player: Int[Array, ""]  # the player's cell
    blocks: Plane  # cells that only glitches enter
    entities: Entities
    waits: Bool[Array, " slots"]  # the enemies to move
    damage: Int[Array, ""]  # attacks so far
    moves: Int[Array, ""]  # an upper bound on the moves that follow
    draws: Draws


class _Movers(NamedTuple):
    """The state of the loop that moves enemies one at a time."""

    cell: Int8[Array, " slots"]  # the cell of each enemy
    is_enemy: Bool[Array, " slots"]
    enemies: Plane  # the cells with an enemy
    waiting: Slots  # the enemies still to move in this step
    again: Slots  # viruses that will act once more in the second step
    second: Bool[Array, ""]  # the second step has begun
    damage: Int[Array, ""]  # attacks so far


def _act(game: Game, draws: Draws) -> Game:
    """All enemies attack or move; then viruses that have not attacked act again.

    A move changes only whether the mover itself is next to the player. So all enemies that are next
    to the player attack at once, and only the other enemies take turns in random order. In a second
    step, viruses that have not attacked act again: viruses that have come next to the player
    attack, and the others move.
    """
    table, player = game.entities, game.player.cell
    awake = table.is_enemy & (table.disabled == 0) & ~table.stunned
    attacks = awake & table.beside(player)
    waits = awake & ~attacks
    # A virus may move twice. Each of the two sums is at most 128, so one number holds both sums.
    moves = jnp.where(waits, jnp.where(table.type == VIRUS, 2, 1), 0)
    sums = total(jnp.where(attacks, 1 << _SUM_BITS, moves))
    damage, moves = sums >> _SUM_BITS, sums & ((1 << _SUM_BITS) - 1)
    # In most games no enemy moves; `rarely` moves enemies only in the other games.
    cell, damage = rarely(
        moves > 0,
        _move_all,
        _Start(player, game.board.blocks, table, waits, damage, moves, draws),
        (table.cell, damage),
        share=16,
        cost=moves,
        short=True,
    )
    hp = jnp.maximum(game.player.hp - damage, 0)
    return replace(game, entities=replace(table, cell=cell), player=replace(game.player, hp=hp))


def _move_all(start: _Start) -> tuple[Int8[Array, " slots"], Int[Array, ""]]:
    """Moves the enemies in ``start.waits``; returns the cells of all enemies, and the damage."""
    table = start.entities
    enemies, transmissions = table.occupied()
    near = single(start.player).neighbors()
    movers = _Movers(
        cell=table.cell,
        is_enemy=table.is_enemy,
        enemies=enemies,
        waiting=slot_set(start.waits),
        again=no_slots(),
        second=jnp.bool_(False),
        damage=start.damage,
    )

    def move_one(number: Array, movers: _Movers) -> _Movers:
        return _move_one(start, near, transmissions, number, movers)

    most = 2 * MAX_ENTITIES
    movers = one_kernel.take_turns(start.moves, move_one, movers, most, at_once=4)
    return movers.cell, movers.damage


def _move_one(
    start: _Start, near: Plane, transmissions: Plane, number: Int[Array, ""], movers: _Movers
) -> _Movers:
    """Moves one enemy, uniformly sampled from those still to move; does nothing if there is none.

    ``near`` are the cells next to the player; ``number`` counts the turns before. No enemy enters a
    cell with a transmission.
    """
    begins = ~movers.waiting.any()
    waiting = movers.again.where(begins, movers.waiting)
    again = no_slots().where(begins, movers.again)
    second = movers.second | begins

    left = waiting.size()
    slot = waiting.nth(start.draws.below(left, Use.ORDER, number))
    mine = (jnp.arange(MAX_ENTITIES) == slot) & (left > 0)
    old, type = by_platform(
        # A CPU looks up one number of each game faster than it sums over slots.
        lambda *fields: [x.at[slot].get(mode="clip").astype(jnp.int32) for x in fields],
        lambda *fields: [total(jnp.where(mine, x, 0)) for x in fields],
        movers.cell,
        start.entities.type,
    )
    occupied = movers.enemies | transmissions
    open_cells = constant(range(NUM_CELLS)).where(type == GLITCH, ~start.blocks)
    new = _way(start.player, old, open_cells.where(left > 0), occupied).only()

    company = anywhere(movers.is_enemy & ~mine & (movers.cell == old))
    moves = new >= 0
    arrived = near.has(new) & moves
    acts_again = (type == VIRUS) & ~second & (left > 0)
    return movers._replace(
        cell=jnp.where(mine & moves, new.astype(jnp.int8), movers.cell),
        enemies=(movers.enemies & ~single(old).where(moves & ~company)) | single(new).where(moves),
        waiting=waiting.without(slot),
        again=again.with_slot(slot, acts_again & ~arrived),
        second=second,
        damage=movers.damage + (acts_again & arrived),
    )


def _way(player: Int[Array, ""], cell: Int[Array, ""], open_cells: Plane, occupied: Plane) -> Plane:
    """Where an enemy that is not next to the player moves: one cell, or no cell if the enemy stays.

    The enemy can enter ``open_cells`` that are not ``occupied``.
    """
    here = single(cell)
    around = here.neighbors()
    # There is no path if the enemy is on the player's cell, or if the player is on a block that the
    # enemy cannot enter.
    source = (single(player) & open_cells).where(cell != player)
    # Shortest paths over free cells or, if there is none, over all open cells.
    # In games that do not need the second search, it starts from an empty set: on a CPU, it ends at
    # once.
    clear, _ = paths.first_met(source, open_cells & ~occupied, around)
    direct, _ = paths.first_met(source.where(~clear.any()), open_cells, around)

    # Without a clear path, the enemy takes the first step of a direct path if that cell is free,
    # and otherwise the free neighbor nearest to the player. Each neighbor is one step closer or one
    # step farther, so the nearest are the closer ones, if any.
    straight = paths.first_neighbor(here, direct) & ~occupied
    free = around & open_cells & ~occupied
    closer = free & _closer(cell, player)
    options = closer.where(closer.any(), free)
    options = straight.where(straight.any(), options)
    return paths.first_neighbor(here, clear.where(clear.any(), options))


def _closer(cell: Int[Array, ""], player: Int[Array, ""]) -> Plane:
    """The neighbors of a cell that are nearer to the player than the cell is."""
    here = single(cell)
    (row, col), (to_row, to_col) = row_and_col(cell), row_and_col(player)
    return (
        here.up().where(to_row > row)
        | here.down().where(to_row < row)
        | here.left().where(to_col < col)
        | here.right().where(to_col > col)
    )
