"""The enemy turn."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int8

from hackmatrix import paths
from hackmatrix.draws import Draws, Use
from hackmatrix.entities import (
    ENEMY,
    GLITCH,
    MAX_ARRIVALS,
    MAX_ENTITIES,
    VIRUS,
    Slots,
    arrival_order,
    full_hp,
    slot_set,
)
from hackmatrix.planes import NUM_CELLS, Plane, constant, empty, single
from hackmatrix.spawning import spawn
from hackmatrix.state import State, replace


def enemy_turn(state: State, draws: Draws) -> State:
    """Plays an enemy turn to its end; what comes after it (history, STEP) is the caller's."""
    state = replace(state, turn=state.turn + 1)
    state = _arrive(state)
    state = _act(state, draws)
    state = _spawn_due(state, draws)
    table = state.entities
    return replace(
        state,
        entities=replace(
            table,
            disabled=jnp.maximum(table.disabled - 1, 0),
            stunned=jnp.zeros_like(table.stunned),
        ),
    )


def _arrive(state: State) -> State:
    """Transmissions count down; those that are due become enemies at the end of the list."""
    table = state.entities
    due = table.is_transmission & (table.turns <= 1)
    arrivals = jnp.minimum(state.arrivals + jnp.any(due), MAX_ARRIVALS)
    table = replace(
        table,
        kind=jnp.where(due, jnp.int8(ENEMY), table.kind),
        hp=jnp.where(due, full_hp(table.type), table.hp),
        disabled=jnp.where(due, jnp.int8(1), table.disabled),
        stunned=table.stunned & ~due,
        turns=table.turns - table.is_transmission,
        order=jnp.where(due, arrival_order(arrivals, table.order), table.order),
    )
    return replace(state, entities=table, arrivals=arrivals)


class _Movers(NamedTuple):
    """The enemies' movement, one enemy at a time.

    Attributes:
        cell: where each is.
        enemies: the cells with an enemy.
        waiting: those still to move in this step.
        again: viruses that will act once more in the second step.
        second: the second step has begun.
        damage: attacks so far.
        moved: how many have moved; numbers the draws.
    """

    cell: Int8[Array, " slots"]
    enemies: Plane
    waiting: Slots
    again: Slots
    second: Bool[Array, ""]
    damage: Int[Array, ""]
    moved: Int[Array, ""]


def _act(state: State, draws: Draws) -> State:
    """All enemies attack or move, in one step or, if a virus is alive, two.

    Nobody's move changes who stands next to the player but the mover's own. So the enemies next to
    the player attack all at once, and only the others take their turns in random order. The second
    step belongs to viruses that have not attacked: one that its first move has brought next to the
    player attacks then, the others move again.
    """
    table, player = state.entities, state.player.cell
    beside = single(player).neighbours()
    awake = table.is_enemy & (table.disabled == 0) & ~table.stunned
    attackers = awake & beside.has(table.cell)
    viruses = slot_set(table.is_enemy & (table.type == VIRUS))
    glitches = slot_set(table.is_enemy & (table.type == GLITCH))
    transmissions = state.transmission_cells
    blocks = state.board.blocks

    none = Slots(jnp.uint32(0), jnp.uint32(0))

    def anyone_left(movers: _Movers) -> Bool[Array, ""]:
        return movers.waiting.any() | movers.again.any()

    def one(movers: _Movers) -> _Movers:
        begins = ~movers.waiting.any()
        waiting = movers.again.where(begins, movers.waiting)
        again = none.where(begins, movers.again)
        second = movers.second | begins
        left = waiting.count()
        slot = waiting.nth(draws.below(left, Use.ORDER, movers.moved))
        old = movers.cell[slot].astype(jnp.int32)
        occupied = movers.enemies | transmissions
        new = _next_cell(old, glitches.has(slot), player, blocks, occupied)
        new = jnp.where(left > 0, new, old)

        mine = jnp.arange(MAX_ENTITIES) == slot
        company = jnp.any(table.is_enemy & ~mine & (movers.cell == old))
        left_behind = single(old).where((new != old) & ~company)
        arrived = beside.has(new)
        acts_again = viruses.has(slot) & ~second & (left > 0)
        return _Movers(
            cell=jnp.where(mine, new.astype(jnp.int8), movers.cell),
            enemies=(movers.enemies & ~left_behind) | single(new).where(new != old),
            waiting=waiting.without(slot),
            again=again.with_slot(slot, acts_again & ~arrived),
            second=second,
            damage=movers.damage + (acts_again & arrived),
            moved=movers.moved + 1,
        )

    start = _Movers(
        cell=table.cell,
        enemies=state.enemy_cells,
        waiting=slot_set(awake & ~attackers),
        again=none,
        second=jnp.bool_(False),
        damage=jnp.sum(attackers, dtype=jnp.int32),
        moved=jnp.int32(0),
    )
    end = jax.lax.while_loop(anyone_left, one, start)
    hp = jnp.maximum(state.player.hp - end.damage, 0)
    return replace(
        state, entities=replace(table, cell=end.cell), player=replace(state.player, hp=hp)
    )


def _next_cell(
    cell: Int[Array, ""],
    glitch: Bool[Array, ""],
    player: Int[Array, ""],
    blocks: Plane,
    occupied: Plane,
) -> Int[Array, ""]:
    """Where an enemy that is not next to the player goes; its own cell if it stays."""
    around = single(cell).neighbours()
    open_cells = constant(range(NUM_CELLS)).where(glitch, ~blocks)
    # On the player's own cell there is no path; nor if the player stands on what is not open to it.
    source = (single(player) & open_cells).where(cell != player, empty())

    clear, _ = paths.first_met(source, open_cells & ~occupied, around)
    direct, _ = paths.first_met(source, open_cells, around)
    by_clear, has_clear = paths.first_direction(clear, cell)
    by_direct, has_direct = paths.first_direction(direct, cell)
    direct_is_free = has_direct & ~occupied.has(by_direct)

    # Of the free neighbours the one nearest to the player. Each is either one step closer or one
    # step farther than here, so the nearest are those that come closer, if any.
    free = around & open_cells & ~occupied
    closer = free & _closer(cell, player)
    by_hand, _ = paths.first_direction(closer.where(closer.any(), free), cell)
    return jnp.where(has_clear, by_clear, jnp.where(direct_is_free, by_direct, by_hand))


def _closer(cell: Int[Array, ""], player: Int[Array, ""]) -> Plane:
    """The neighbours of a cell that are nearer to the player than the cell is."""
    here = single(cell)
    row, col, to_row, to_col = cell // 6, cell % 6, player // 6, player % 6
    return (
        here.up().where(to_row > row)
        | here.down().where(to_row < row)
        | here.left().where(to_col < col)
        | here.right().where(to_col > col)
    )


def _spawn_due(state: State, draws: Draws) -> State:
    """The scheduled transmission, then those that siphoned blocks bring."""
    scheduled = ~state.calm & (state.turn >= state.next_task)
    state = spawn(state, draws, scheduled, state.pending, from_siphon=True)
    next_task = jnp.where(scheduled, state.turn + state.interval, state.next_task)
    return replace(state, next_task=next_task, pending=jnp.zeros_like(state.pending))
