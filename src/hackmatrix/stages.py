"""Laying out a stage. It is dear and rare; :mod:`hackmatrix.env` calls it through ``rarely``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from hackmatrix import paths
from hackmatrix.draws import Draws
from hackmatrix.entities import Entities, arrival_order
from hackmatrix.planes import NUM_CELLS, Plane, constant, empty, pack, single
from hackmatrix.programs import CARDS, NUM_PROGRAMS
from hackmatrix.spawning import spawn
from hackmatrix.state import (
    FIRST_INTERVAL,
    NO_PROGRAM,
    State,
    empty_board,
    replace,
)

CORNERS = (0, 5, 30, 35)
_MIN_BLOCKS, _MAX_BLOCKS = 5, 11
_MAX_POINTS = 9
_QUESTION_SHARE = 0.1
_TWO_OR_MORE, _THREE = 0.55, 0.1  # chances of an amount of resources
# A valid layout is found in 12 draws on average where 11 blocks are wanted. On a crowded board
# there may be none with so many blocks; after this many draws one fewer is tried.
_PATIENCE = 1024


def lay_out(key: Key[Array, ""], state: State) -> State:
    """The stage ``state.stage``, laid out around the player and whoever is left alive."""
    exit_key, place_key, content_key, resource_key, spawn_key = jax.random.split(key, 5)
    corners = constant(list(CORNERS)) & ~single(state.player.cell)
    exit = corners.nth(jax.random.randint(exit_key, (), 0, corners.count()))
    blocks = place_blocks(place_key, state, exit)

    one, two, three, four = jax.random.split(content_key, 4)
    is_block = blocks.flags()
    has_program = is_block & jax.random.bernoulli(one, 0.5, (NUM_CELLS,))
    has_data = is_block & ~has_program
    # The n-th program block holds the n-th of the programs in random order, so none stands twice.
    number = jnp.cumsum(has_program) - 1
    program = jax.random.permutation(two, NUM_PROGRAMS)[jnp.clip(number, 0, NUM_PROGRAMS - 1)]
    points = jax.random.randint(three, (NUM_CELLS,), 1, _MAX_POINTS + 1)
    hidden = is_block & jax.random.bernoulli(four, _QUESTION_SHARE, (NUM_CELLS,))
    spawn_count = jnp.array([card.spawn_count for card in CARDS])[program]

    kind_key, amount_key = jax.random.split(resource_key)
    has_resources = (~(blocks | single(exit))).flags()
    is_credits = jax.random.bernoulli(kind_key, 0.5, (NUM_CELLS,))
    chance = jax.random.uniform(amount_key, (NUM_CELLS,))
    amount = 1 + (chance < _TWO_OR_MORE).astype(jnp.int8) + (chance < _THREE).astype(jnp.int8)

    zero = jnp.int8(0)
    board = replace(
        empty_board(),
        data=pack(has_data),
        program_blocks=pack(has_program),
        question=pack(hidden),
        pickups=corners & ~single(exit),
        exits=single(exit),
        points=jnp.where(has_data, points.astype(jnp.int8), zero),
        program=jnp.where(has_program, program.astype(jnp.int8), jnp.int8(NO_PROGRAM)),
        spawn_count=jnp.where(has_data, points, jnp.where(has_program, spawn_count, 0)).astype(
            jnp.int8
        ),
        credits=jnp.where(has_resources & is_credits, amount, zero),
        energy=jnp.where(has_resources & ~is_credits, amount, zero),
    )
    interval = FIRST_INTERVAL + 1 - state.stage
    state = replace(
        state,
        turn=jnp.int32(0),
        exit=exit,
        board=board,
        entities=_renumbered(state.entities),
        show=jnp.bool_(False),
        calm=jnp.bool_(False),
        step_pending=jnp.bool_(False),
        atk_uses=jnp.int32(0),
        interval=interval,
        next_task=interval,
        births=jnp.sum(state.entities.is_transmission, dtype=jnp.int32),
        arrivals=jnp.int32(1),
    )
    return spawn(state, Draws(spawn_key), False, state.stage, from_siphon=False)


class _Search(NamedTuple):
    """The search for a valid layout: the number of blocks wanted and the last ones drawn."""

    number: Int[Array, ""]
    draws: Int[Array, ""]
    blocks: Plane
    valid: Bool[Array, ""]


def place_blocks(key: Key[Array, ""], state: State, exit: Int[Array, ""]) -> Plane:
    """The cells of the stage's blocks: drawn whole, again and again, until the layout is valid."""
    number_key, draw_key = jax.random.split(key)
    taken = state.enemy_cells | state.transmission_cells | constant(list(CORNERS))
    room = ~taken
    wanted = jax.random.randint(number_key, (), _MIN_BLOCKS, _MAX_BLOCKS + 1)

    def invalid(search: _Search) -> Bool[Array, ""]:
        return ~search.valid

    def draw(search: _Search) -> _Search:
        blocks = _random_cells(jax.random.fold_in(draw_key, search.draws), room, search.number)
        tired = (search.draws + 1) % _PATIENCE == 0
        return _Search(
            number=search.number - tired,
            draws=search.draws + 1,
            blocks=blocks,
            valid=is_valid_layout(blocks, state.player.cell, exit),
        )

    start = _Search(jnp.minimum(wanted, room.count()), jnp.int32(0), empty(), jnp.bool_(False))
    return jax.lax.while_loop(invalid, draw, start).blocks


def is_valid_layout(blocks: Plane, player: Int[Array, ""], exit: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether all other cells are connected, the exit as an end only, and no block is walled in."""
    ground = ~blocks
    reached = paths.connected(single(player), ground & ~single(exit))
    reached = reached | (reached.neighbours() & single(exit))
    return ~((ground & ~reached) | (blocks & ~ground.neighbours())).any()


def _random_cells(key: Key[Array, ""], room: Plane, number: Int[Array, ""]) -> Plane:
    """A uniformly random set of ``number`` cells of ``room``."""
    draws = jax.random.uniform(key, (_MAX_BLOCKS,))

    def choose(index: Array, chosen: Plane) -> Plane:
        left = room & ~chosen
        rank = jnp.floor(draws[index] * left.count()).astype(jnp.int32)
        cell = left.nth(jnp.minimum(rank, left.count() - 1))
        return chosen | single(cell).where(index < number)

    return jax.lax.fori_loop(0, _MAX_BLOCKS, choose, empty())


def _renumbered(table: Entities) -> Entities:
    """The same list order in small numbers, so that the stamps of a new stage start afresh."""
    alive = table.kind != 0
    earlier = (table.order[None, :] < table.order[:, None]) & alive[None, :]
    same_kind = table.kind[None, :] == table.kind[:, None]
    rank = jnp.sum(earlier & same_kind, axis=1).astype(jnp.uint32)
    order = jnp.where(table.is_enemy, arrival_order(jnp.int32(1), rank), rank)
    return replace(table, order=order)
