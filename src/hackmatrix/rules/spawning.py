"""Spawning transmissions."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from hackmatrix.rules import one_kernel, paths
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import (
    ARRIVAL_SHIFT,
    FREE,
    MAX_ENTITIES,
    NUM_TYPES,
    TRANSMISSION,
    Slots,
    slot_set,
)
from hackmatrix.rules.game import Game, replace
from hackmatrix.rules.planes import NUM_CELLS, Plane, single

_CELL_BITS, _TYPE_BITS = 6, 2
_MANY = 1 << (ARRIVAL_SHIFT - 1)


def is_due(game: Game) -> Bool[Array, ""]:
    """Whether transmissions spawn after an enemy turn."""
    return _is_scheduled(game) | (game.pending > 0)


def spawn_due(game: Game, draws: Draws) -> Game:
    """Spawns after an enemy turn: first by the schedule, then from siphoned blocks."""
    scheduled = _is_scheduled(game)
    game = spawn(game, draws, scheduled, game.pending, from_siphon=True, most=NUM_CELLS)
    return replace(
        game,
        next_task=jnp.where(scheduled, game.turn + game.interval, game.next_task),
        pending=jnp.int32(0),
    )


def _is_scheduled(game: Game) -> Bool[Array, ""]:
    return ~game.calm & (game.turn >= game.next_task)


def spawn(
    game: Game,
    draws: Draws,
    from_task: Bool[Array, ""] | bool,
    others: Int[Array, ""],
    from_siphon: bool,
    most: int,
) -> Game:
    """Spawns ``others`` transmissions, and before them one of the schedule if ``from_task``.

    ``most`` is an upper bound of their number, known at trace time.

    Each transmission in turn takes a uniformly sampled empty cell outside the player's line of fire
    or, without such a cell, any empty cell. Without an empty cell or a free slot, nothing spawns.
    """
    player = single(game.player.cell)
    enemies, transmissions = game.entities.occupied()
    solid = enemies | game.board.blocks
    up, down, left, right = paths.line(player, solid)
    in_fire = up | down | left | right
    vacant = ~(solid | player | transmissions)
    free = slot_set(game.entities.kind == FREE)
    count = jnp.minimum(jnp.minimum(others + from_task, vacant.size()), free.size())
    # Stamps of list order restart at 0 when no entity has a stamp, so that they stay small.
    births = jnp.where(transmissions.any() | (game.births < _MANY), game.births, 0)
    arrivals = jnp.where(enemies.any() | (game.arrivals < _MANY), game.arrivals, 0)

    def one(made: Array, carry: tuple[Plane, Slots, Array]) -> tuple[Plane, Slots, Array]:
        vacant, free, born = carry
        hidden = vacant & ~in_fire
        choice = hidden.where(hidden.any(), vacant)
        cell = choice.nth(draws.below(choice.size(), Use.SPAWN_CELL, made))
        type = draws.below(NUM_TYPES, Use.SPAWN_TYPE, made)
        word = cell | (type << _CELL_BITS) | (made << (_CELL_BITS + _TYPE_BITS))
        slot = jnp.where(made < count, free.lowest(), MAX_ENTITIES)
        born = jnp.where(jnp.arange(MAX_ENTITIES) == slot, word.astype(jnp.int16), born)
        return vacant & ~single(cell), free.without(slot), born

    table = game.entities
    none = jnp.full(MAX_ENTITIES, -1, jnp.int16)
    start = (vacant, free, none)
    _, _, born = one_kernel.take_turns(count, one, start, most, at_once=8)
    new = born >= 0
    number = born >> (_CELL_BITS + _TYPE_BITS)
    task = new & from_task & (number == 0)
    table = replace(
        table,
        kind=jnp.where(new, jnp.int8(TRANSMISSION), table.kind),
        type=jnp.where(new, ((born >> _CELL_BITS) & (NUM_TYPES - 1)).astype(jnp.int8), table.type),
        cell=jnp.where(new, (born & ((1 << _CELL_BITS) - 1)).astype(jnp.int8), table.cell),
        turns=jnp.where(new, jnp.int16(1), table.turns),
        from_siphon=jnp.where(new, ~task & from_siphon, table.from_siphon),
        from_task=jnp.where(new, task, table.from_task),
        order=jnp.where(new, (births + number).astype(jnp.uint32), table.order),
    )
    return replace(game, entities=table, births=births + count, arrivals=arrivals)
