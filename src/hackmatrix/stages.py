"""Laying out a stage. It is dear and rare; :mod:`hackmatrix.env` calls it through ``rarely``."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, Key

from hackmatrix import bits, paths
from hackmatrix.draws import Draws, Use
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
_QUESTION_ONE_IN = 10
_AMOUNT_CHANCES = (2, 11, 20)  # of 20: for 3, for 2 or more, for 1 or more
# A valid layout is found in 12 draws on average where 11 blocks are wanted. On a crowded board
# there may be none with so many blocks; after this many draws one fewer is tried.
_PATIENCE = 1024


def lay_out(key: Key[Array, ""], state: State) -> State:
    """The stage ``state.stage``, laid out around the player and whoever is left alive."""
    draws = Draws(key)
    corners = constant(list(CORNERS)) & ~single(state.player.cell)
    exit = corners.nth(draws.below(corners.size(), Use.EXIT))
    blocks = place_blocks(draws, state, exit)

    cells = jnp.arange(NUM_CELLS)
    is_block = blocks.flags()
    has_program = is_block & (draws.below(2, Use.BLOCK_KIND, cells) == 0)
    has_data = is_block & ~has_program
    hidden = is_block & (draws.below(_QUESTION_ONE_IN, Use.BLOCK_HIDDEN, cells) == 0)
    points = 1 + draws.below(_MAX_POINTS, Use.POINTS, cells)
    program = _different_programs(draws, has_program)
    spawn_count = jnp.array([card.spawn_count for card in CARDS])[program]

    has_resources = (~(blocks | single(exit))).flags()
    is_credits = draws.below(2, Use.RESOURCE_KIND, cells) == 0
    chance = draws.below(_AMOUNT_CHANCES[-1], Use.AMOUNT, cells)
    amount = sum((chance < bound).astype(jnp.int8) for bound in _AMOUNT_CHANCES)

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
    return spawn(state, draws, False, state.stage, from_siphon=False)


class _Search(NamedTuple):
    """The search for a valid layout: the number of blocks wanted and the last ones drawn."""

    number: Int[Array, ""]
    draws: Int[Array, ""]
    blocks: Plane
    valid: Bool[Array, ""]


def place_blocks(draws: Draws, state: State, exit: Int[Array, ""]) -> Plane:
    """The cells of the stage's blocks: drawn whole, again and again, until the layout is valid."""
    taken = state.enemy_cells | state.transmission_cells | constant(list(CORNERS))
    room = ~taken
    wanted = _MIN_BLOCKS + draws.below(_MAX_BLOCKS - _MIN_BLOCKS + 1, Use.BLOCK_COUNT)

    def invalid(search: _Search) -> Bool[Array, ""]:
        return ~search.valid

    def draw(search: _Search) -> _Search:
        blocks = _random_cells(draws, search.draws * _MAX_BLOCKS, room, search.number)
        tired = (search.draws + 1) % _PATIENCE == 0
        return _Search(
            number=search.number - tired,
            draws=search.draws + 1,
            blocks=blocks,
            valid=is_valid_layout(blocks, exit),
        )

    start = _Search(jnp.minimum(wanted, room.size()), jnp.int32(0), empty(), jnp.bool_(False))
    return jax.lax.while_loop(invalid, draw, start).blocks


def is_valid_layout(blocks: Plane, exit: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether all other cells are connected, the exit as an end only, and no block is walled in.

    The original looks from cell (0, 0), and so does walk through an exit that lies there.
    """
    ground = ~blocks
    end = single(exit).where(exit != 0)
    reached = paths.connected(single(jnp.int32(0)), ground & ~end)
    reached = reached | (reached.neighbours() & end)
    return ~((ground & ~reached) | (blocks & ~ground.neighbours())).any()


def _random_cells(
    draws: Draws, first_draw: Int[Array, ""], room: Plane, number: Int[Array, ""]
) -> Plane:
    """A uniformly random set of ``number`` cells of ``room``."""

    def choose(index: Array, chosen: Plane) -> Plane:
        left = room & ~chosen
        cell = left.nth(draws.below(left.size(), Use.BLOCK_CELL, first_draw + index))
        return chosen | single(cell).where(index < number)

    return jax.lax.fori_loop(0, _MAX_BLOCKS, choose, empty())


def _different_programs(draws: Draws, has_program: Bool[Array, "cells"]) -> Int[Array, "cells"]:
    """A program for each of the flagged cells, none twice; 0 for the others."""

    def choose(index: Array, carry: tuple[Array, Array]) -> tuple[Array, Array]:
        left, program = carry
        count = lax.population_count(left).astype(jnp.int32)
        number = bits.nth_bit(left, draws.below(count, Use.PROGRAM, index))
        here = has_program & (jnp.cumsum(has_program) == index + 1)
        bit = jnp.uint32(1) << number.astype(jnp.uint32)
        return left & ~bit, jnp.where(here, number, program)

    all_programs = jnp.uint32((1 << NUM_PROGRAMS) - 1)
    start = (all_programs, jnp.zeros(NUM_CELLS, jnp.int32))
    return lax.fori_loop(0, _MAX_BLOCKS, choose, start)[1]


def _renumbered(table: Entities) -> Entities:
    """The same list order in small numbers, so that the stamps of a new stage start afresh."""
    alive = table.kind != 0
    earlier = (table.order[None, :] < table.order[:, None]) & alive[None, :]
    same_kind = table.kind[None, :] == table.kind[:, None]
    rank = jnp.sum(earlier & same_kind, axis=1).astype(jnp.uint32)
    order = jnp.where(table.is_enemy, arrival_order(jnp.int32(1), rank), rank)
    return replace(table, order=order)
