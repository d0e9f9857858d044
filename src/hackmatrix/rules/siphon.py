"""Siphoning: its yield, and how much more a better place would have brought."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32

from hackmatrix.rules.batching import join, largest, materialize, total
from hackmatrix.rules.game import Board, Game, replace
from hackmatrix.rules.planes import NUM_CELLS, SIZE, reach_of_each, single

_MIN_INTERVAL = 4
_TASK_DELAY = 5
_SUM_BITS = 8


def siphon(game: Game) -> Game:
    """Siphons the player's cell and its neighbors. The caller ends the turn."""
    board, player = game.board, game.player
    here = single(player.cell)
    fresh = (here | here.neighbors()) & ~board.siphoned
    taken_blocks = (fresh & board.blocks).flags()
    taken_ground = (fresh & ~board.blocks).flags()
    found = _programs_as_bits(board, (fresh & board.program_blocks).flags())
    # Siphoning reaches at most five cells, with less than 16 of each amount, so one sum holds all
    # four amounts, each in a byte.
    amounts = (
        (board.points, (fresh & board.data).flags()),
        (board.credits, taken_ground),
        (board.energy, taken_ground),
        (board.spawn_count, taken_blocks),
    )
    words = [
        jnp.where(where, values, 0).astype(jnp.int32) << (_SUM_BITS * place)
        for place, (values, where) in enumerate(amounts)
    ]
    taken = total(sum(words[1:], words[0]))
    score, credits, energy, pending = (
        (taken >> (_SUM_BITS * place)) & ((1 << _SUM_BITS) - 1) for place in range(4)
    )
    return replace(
        game,
        player=replace(
            player,
            data_siphons=player.data_siphons - 1,
            score=player.score + score,
            credits=player.credits + credits,
            energy=player.energy + energy,
        ),
        board=replace(
            board,
            question=board.question & ~fresh,
            siphoned=board.siphoned | fresh,
            centers=board.centers | here,
            spawn_count=jnp.where(taken_blocks, jnp.int8(0), board.spawn_count),
            credits=jnp.where(taken_ground, jnp.int8(0), board.credits),
            energy=jnp.where(taken_ground, jnp.int8(0), board.energy),
        ),
        owned=game.owned | join(found),
        pending=game.pending + pending,
        interval=jnp.maximum(game.interval - 1, _MIN_INTERVAL),
        next_task=game.next_task + _TASK_DELAY,
    )


def _programs_as_bits(board: Board, where: Bool[Array, " cells"]) -> UInt32[Array, " cells"]:
    bit = jnp.uint32(1) << jnp.maximum(board.program, 0).astype(jnp.uint32)
    return jnp.where(where, bit, jnp.uint32(0))


def lost_yield(game: Game) -> Int[Array, ""]:
    """The additional credits and energy that a strictly better place would have brought.

    A better place brings the same data points and new programs, no less of either resource, and
    more of at least one. If the player's place brings data or programs, a better place also reaches
    all the unsiphoned blocks that the player's place reaches. The result is the most additional
    credits plus the most additional energy among all better places.
    """
    board = game.board
    fresh = ~board.siphoned
    yields = _yields(game)
    credits, energy, points, programs = yields

    player = single(game.player.cell)
    on_block = (player & board.blocks).any()
    mine = jnp.where(on_block, 0, yields.at[:, game.player.cell].get(mode="promise_in_bounds"))
    my_credits, my_energy, my_points, my_programs = mine
    my_blocks = (player | player.neighbors()) & fresh & board.blocks
    covers = ~(my_blocks & ~reach_of_each()).any()
    candidate = ~board.blocks.flags() & (covers | ((my_points == 0) & (my_programs == 0)))
    better = (
        candidate
        & (points == my_points)
        & (programs == my_programs)
        & (credits >= my_credits)
        & (energy >= my_energy)
        & ((credits > my_credits) | (energy > my_energy))
    )
    more = jnp.where(better, yields[:2] - mine[:2, None], 0).astype(jnp.int32)
    return total(largest(more))


def _yields(game: Game) -> UInt32[Array, "4 cells"]:
    """The yield of siphoning from each cell: credits, energy, points and programs.

    Points and programs are bit fields, so that cells with equal fields yield the same. A data block
    is worth 1 to 9 points; for each of these values, three bits count the blocks in reach, which
    are at most five. Each program has one bit.
    """
    board = game.board
    fresh = ~board.siphoned
    ground = (fresh & ~board.blocks).flags()
    counted = jnp.uint32(1) << (3 * jnp.maximum(board.points - 1, 0)).astype(jnp.uint32)
    on_cells = (
        jnp.where(ground, board.credits, 0).astype(jnp.uint32),
        jnp.where(ground, board.energy, 0).astype(jnp.uint32),
        jnp.where((fresh & board.data).flags(), counted, 0),
        _programs_as_bits(board, (fresh & board.program_blocks).flags()) & ~game.owned,
    )
    grid = jnp.stack(on_cells).reshape(-1, SIZE, SIZE)
    are_programs = (np.arange(len(on_cells)) == len(on_cells) - 1)[:, None, None]
    padded = jnp.pad(grid, ((0, 0), (1, 1), (1, 1)))
    reached = grid
    for row, col in ((2, 1), (0, 1), (1, 0), (1, 2)):
        part = padded[:, row : row + SIZE, col : col + SIZE]
        reached = jnp.where(are_programs, reached | part, reached + part)
    # Materialized, as all cells are compared with the player's cell.
    return materialize(reached.reshape(-1, NUM_CELLS), game.steps < 0)
