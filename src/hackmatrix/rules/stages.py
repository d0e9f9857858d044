"""Setting up a stage, which is expensive but rare: its layout and its first transmissions."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from hackmatrix.rules import one_kernel, paths
from hackmatrix.rules.batching import batch_any, total
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import Entities, arrival_order
from hackmatrix.rules.game import (
    FIRST_INTERVAL,
    NO_PROGRAM,
    NUM_STAGES,
    Board,
    Game,
    empty_board,
    replace,
)
from hackmatrix.rules.planes import NUM_CELLS, Plane, before_each, constant, empty, pack, single
from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS
from hackmatrix.rules.spawning import spawn
from ppo_mask.jax_tools import by_platform

CORNERS = (0, 5, 30, 35)
_MIN_BLOCKS, _MAX_BLOCKS = 5, 11
MAX_POINTS = 9
_QUESTION_ONE_IN = 10
_AMOUNT_CHANCES = (2, 11, 20)  # chances in 20 of an amount of 3, of at least 2, of at least 1
# With 11 blocks, a valid layout takes 12 samples on average. On a crowded board no layout may be
# valid; after this many samples the search tries one block fewer.
_PATIENCE = 1024
# Layouts sampled at a time, on a CPU and elsewhere; each divides _PATIENCE.
_FEW, _MANY = 8, 32


def set_up(game: Game, draws: Draws, needed: Bool[Array, ""] | bool = True) -> Game:
    """Sets up ``game.stage`` around the player and the entities, which keep their cells.

    Where the stage is not ``needed``, it may have an invalid layout: no search waits for it.
    """
    exit, board = _lay_out(draws, game.player.cell, game.entities, needed)
    interval = FIRST_INTERVAL + 1 - game.stage
    game = replace(
        game,
        exit=exit,
        board=board,
        entities=replace(game.entities, order=_renumbered(game.entities)),
        **dict.fromkeys(("turn", "atk_uses", "undo_length"), jnp.int32(0)),
        **dict.fromkeys(("show", "calm", "step_pending"), jnp.bool_(False)),
        interval=interval,
        next_task=interval,
        births=total(game.entities.is_transmission),
        arrivals=jnp.int32(1),
    )
    return spawn(game, draws, False, game.stage, from_siphon=False, most=NUM_STAGES)


def _lay_out(
    draws: Draws, player: Int[Array, ""], entities: Entities, needed: Bool[Array, ""] | bool
) -> tuple[Int[Array, ""], Board]:
    corners = constant(list(CORNERS)) & ~single(player)
    exit = corners.nth(draws.below(corners.size(), Use.EXIT))
    blocks = place_blocks(draws, entities, exit, needed)

    cells = np.arange(NUM_CELLS)
    is_block = blocks.flags()
    has_program = is_block & (draws.below(2, Use.BLOCK_KIND, cells) == 0)
    has_data = is_block & ~has_program
    hidden = is_block & (draws.below(_QUESTION_ONE_IN, Use.BLOCK_HIDDEN, cells) == 0)
    points = 1 + draws.below(MAX_POINTS, Use.POINTS, cells)
    program_blocks = pack(has_program)
    program = different_programs(draws, program_blocks)
    spawn_count = jnp.array([card.spawn_count for card in CARDS])[program]

    has_resources = (~(blocks | single(exit))).flags()
    is_credits = draws.below(2, Use.RESOURCE_KIND, cells) == 0
    chance = draws.below(_AMOUNT_CHANCES[-1], Use.AMOUNT, cells)
    amount = sum((chance < bound).astype(jnp.int8) for bound in _AMOUNT_CHANCES)

    spawns = jnp.where(has_data, points, jnp.where(has_program, spawn_count, 0))
    zero = jnp.int8(0)
    board = replace(
        empty_board(),
        data=pack(has_data),
        program_blocks=program_blocks,
        question=pack(hidden),
        pickups=corners & ~single(exit),
        exits=single(exit),
        points=jnp.where(has_data, points.astype(jnp.int8), zero),
        program=jnp.where(has_program, program.astype(jnp.int8), jnp.int8(NO_PROGRAM)),
        spawn_count=spawns.astype(jnp.int8),
        credits=jnp.where(has_resources & is_credits, amount, zero),
        energy=jnp.where(has_resources & ~is_credits, amount, zero),
        exit_steps=paths.exit_steps(blocks, exit),
    )
    return exit, board


class _Search(NamedTuple):
    """The search for a valid layout."""

    number: Int[Array, ""]  # how many blocks to place
    draws: Int[Array, ""]  # layouts sampled so far
    blocks: Plane  # the first valid layout, once found
    valid: Bool[Array, ""]  # whether a valid layout is found
    missing: Bool[Array, ""]  # whether any game of the batch lacks a layout; the same for all games


def place_blocks(
    draws: Draws, entities: Entities, exit: Int[Array, ""], needed: Bool[Array, ""] | bool
) -> Plane:
    """Samples whole layouts until one is valid, and returns the cells of its blocks.

    Samples several layouts at a time and takes the first valid layout.
    """
    enemies, transmissions = entities.occupied()
    taken = enemies | transmissions | constant(list(CORNERS))
    room = ~taken
    wanted = _MIN_BLOCKS + draws.below(_MAX_BLOCKS - _MIN_BLOCKS + 1, Use.BLOCK_COUNT)

    at_once = by_platform(lambda: _FEW, lambda: _MANY)

    def draw(search: _Search) -> _Search:
        numbers = search.draws + np.arange(at_once)
        layouts = jax.vmap(lambda n: _random_cells(draws, n, room, search.number))(numbers)
        valid = jax.vmap(is_valid_layout, (0, None))(layouts, exit)
        first = jax.tree.map(lambda x: x[jnp.argmax(valid)], layouts)
        number_drawn = search.draws + at_once
        found = search.valid | jnp.any(valid)
        return _Search(
            number=search.number - (lax.rem(number_drawn, _PATIENCE) == 0),
            draws=number_drawn,
            blocks=search.blocks.where(search.valid, first),
            valid=found,
            missing=batch_any(~found),
        )

    number = jnp.minimum(wanted, room.size())
    found = jnp.logical_not(needed)
    start = _Search(number, jnp.int32(0), empty(), found, batch_any(~found))
    return one_kernel.while_loop(lambda search: search.missing, draw, start).blocks


def is_valid_layout(blocks: Plane, exit: Int[Array, ""]) -> Bool[Array, ""]:
    """Whether all free cells are connected without passing the exit, and no block is walled in.

    An exit at cell (0, 0) may be passed: in the original game, the search for connected cells
    starts there.
    """
    ground = ~blocks
    end = single(exit).where(exit != 0)
    reached = paths.reach(single(jnp.int32(0)), ground & ~end)
    reached = reached | (reached.neighbors() & end)
    return ~((ground & ~reached) | (blocks & ~ground.neighbors())).any()


def _random_cells(
    draws: Draws, layout: Int[Array, ""], room: Plane, number: Int[Array, ""]
) -> Plane:
    """A uniformly random set of ``number`` cells of ``room``; each ``layout`` has its own draws."""

    def take(i: Array, left: Plane) -> Plane:
        rank = draws.below(left.size(), Use.BLOCK_CELL, layout * _MAX_BLOCKS + i)
        return left & ~single(left.nth(rank)).where(i < number)

    unroll = by_platform(lambda: 1, lambda: _MAX_BLOCKS)
    return room & ~lax.fori_loop(0, _MAX_BLOCKS, take, room, unroll=unroll)


def different_programs(
    draws: Draws, cells: Plane, taken: Bool[Array, "programs"] | bool = False
) -> Int[Array, "cells"]:
    """A different program for each cell of the set, and any program for the other cells.

    Programs that are ``taken`` come last.
    """
    # The n-th cell gets the n-th program of a random order. The program's number, in the low bits,
    # breaks ties.
    words = draws.word(Use.PROGRAM, np.arange(NUM_PROGRAMS))
    words = jnp.where(taken, jnp.uint32(0xFFFFFFFF), words)
    words = (words & jnp.uint32(~63 & 0xFFFFFFFF)) | np.arange(NUM_PROGRAMS, dtype=np.uint32)
    place = total(words[None, :] < words[:, None])
    number = (cells & before_each()).size()  # how many cells of the set precede each cell
    return total(jnp.where(place == number[:, None], np.arange(NUM_PROGRAMS), 0))


def _renumbered(table: Entities) -> UInt32[Array, " slots"]:
    """Renumbers the stamps of list order, so that a new stage's stamps start from 0."""
    alive = table.kind != 0
    earlier = (table.order[None, :] < table.order[:, None]) & alive[None, :]
    same_kind = table.kind[None, :] == table.kind[:, None]
    rank = total(earlier & same_kind).astype(jnp.uint32)
    return jnp.where(table.is_enemy, arrival_order(jnp.int32(1), rank), rank)
