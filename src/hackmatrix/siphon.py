"""Siphoning: what it takes, and how good a place for it was."""

from collections.abc import Callable

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt32

from hackmatrix.batching import computed_once, joined, largest, total
from hackmatrix.game import Board, Game, replace
from hackmatrix.planes import NUM_CELLS, SIZE, single

_MIN_INTERVAL = 4
_TASK_DELAY = 5
_NUM_POINTS = 9


def siphon(game: Game) -> Game:
    """Siphons the player's cell and its neighbours; ending the turn is the caller's."""
    board, player = game.board, game.player
    here = single(player.cell)
    fresh = (here | here.neighbours()) & ~board.siphoned
    taken_blocks = (fresh & board.blocks).flags()
    taken_ground = (fresh & ~board.blocks).flags()
    found = _programs_as_bits(board, (fresh & board.program_blocks).flags())

    def taken(values: Array, where: Bool[Array, " cells"]) -> Int[Array, ""]:
        return total(jnp.where(where, values, 0))

    return replace(
        game,
        player=replace(
            player,
            data_siphons=player.data_siphons - 1,
            score=player.score + taken(board.points, (fresh & board.data).flags()),
            credits=player.credits + taken(board.credits, taken_ground),
            energy=player.energy + taken(board.energy, taken_ground),
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
        owned=game.owned | joined(found),
        pending=game.pending + taken(board.spawn_count, taken_blocks),
        interval=jnp.maximum(game.interval - 1, _MIN_INTERVAL),
        next_task=game.next_task + _TASK_DELAY,
    )


def _programs_as_bits(board: Board, where: Bool[Array, " cells"]) -> UInt32[Array, " cells"]:
    bit = jnp.uint32(1) << jnp.maximum(board.program, 0).astype(jnp.uint32)
    return jnp.where(where, bit, jnp.uint32(0))


def lost_yield(game: Game) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """Credits and energy that siphoning from a strictly better place would have brought.

    Better means the same data points and new programs, at least as much of both resources and more
    of one; where the player's place has data or programs, only places that reach all its blocks
    count.
    """
    board = game.board
    fresh = ~board.siphoned
    ground = (fresh & ~board.blocks).flags()
    cell = jnp.arange(NUM_CELLS)
    standable = ~board.blocks.flags()

    # A yield in three words that are equal where the yields are: three bits count each of the nine
    # possible points (a place reaches five cells), one bit stands for each program.
    points = jnp.where(
        (fresh & board.data).flags(),
        jnp.uint32(1) << (3 * jnp.maximum(board.points - 1, 0)).astype(jnp.uint32),
        jnp.uint32(0),
    )
    programs = _programs_as_bits(board, (fresh & board.program_blocks).flags()) & ~game.owned
    yields = [
        _reach(jnp.where(ground, board.credits, 0).astype(jnp.uint32), jnp.add),
        _reach(jnp.where(ground, board.energy, 0).astype(jnp.uint32), jnp.add),
        _reach(points, jnp.add),
        _reach(programs, jnp.bitwise_or),
    ]
    # In memory: each cell's is compared with the player's.
    credits, energy, points, programs = computed_once(jnp.stack(yields), game.steps < 0)

    here = cell == game.player.cell
    on_block = board.blocks.has(game.player.cell)

    def own(values: Array) -> Array:
        return jnp.where(on_block, 0, largest(jnp.where(here, values, 0)))

    my_credits, my_energy, my_points, my_programs = map(own, (credits, energy, points, programs))
    player = single(game.player.cell)
    my_blocks = (player | player.neighbours()) & fresh & board.blocks
    places = single(cell)
    reach = places | places.neighbours()
    covers = ~(my_blocks & ~reach).any()
    candidate = standable & (covers | ((my_points == 0) & (my_programs == 0)))
    better = (
        candidate
        & (points == my_points)
        & (programs == my_programs)
        & (credits >= my_credits)
        & (energy >= my_energy)
        & ((credits > my_credits) | (energy > my_energy))
    )
    most_credits = largest(jnp.where(better, credits, my_credits))
    most_energy = largest(jnp.where(better, energy, my_energy))
    lost_credits, lost_energy = most_credits - my_credits, most_energy - my_energy
    return lost_credits.astype(jnp.int32), lost_energy.astype(jnp.int32)


def _reach(values: Array, combine: Callable[[Array, Array], Array]) -> Array:
    """For each cell, the values of itself and its neighbours combined."""
    grid = values.reshape(SIZE, SIZE)
    padded = jnp.pad(grid, 1)
    out = grid
    for part in (padded[2:, 1:-1], padded[:-2, 1:-1], padded[1:-1, :-2], padded[1:-1, 2:]):
        out = combine(out, part)
    return out.reshape(NUM_CELLS)


def quality(game: Game) -> Float[Array, ""]:
    """The siphon_quality reward: half of what the better place's resources would have earned."""
    lost_credits, lost_energy = lost_yield(game)
    return -0.5 * 0.05 * (lost_credits + lost_energy).astype(jnp.float32)
