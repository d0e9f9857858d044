"""What the player cannot see, drawn anew: as the game's own generators would, given what is seen.

- A question block holds data or a program, half and half; points are uniform, and so are programs,
  of which none is twice in a stage. What each use of REDUC has taken off is taken off.
- The type of a transmission is uniform.
- A cryptog out of sight is on any cell out of sight that has room. This is an approximation: a
  player who has followed the game knows more of where it can be. How many there are stays.

What UNDO would bring back is drawn alike where it is still hidden, except that cryptogs come back
to where they were. Of a program whose block CRASH has removed, nothing is remembered, so such a
program can come again.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int8

from hackmatrix.observation import visible_enemies
from hackmatrix.rules.batching import largest, total
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import FREE, MAX_ENTITIES, NUM_TYPES
from hackmatrix.rules.game import NO_PROGRAM, Board, Game, replace
from hackmatrix.rules.planes import NUM_CELLS, Plane, column, pack, row, single
from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS
from hackmatrix.rules.stages import MAX_POINTS, different_programs

# Of each program, and 0 for NO_PROGRAM, which is the last one.
_SPAWN_COUNTS = np.array([*(card.spawn_count for card in CARDS), 0], np.int8)


class Unseen(NamedTuple):
    """What was drawn for a position.

    Attributes:
        blocks: the question blocks whose content was drawn.
        program: a block's program; NO_PROGRAM for data.
        points: a data block's points, else 0.
        transmissions: the entities whose type was drawn.
        type: an entity's type.
    """

    blocks: Plane
    program: Int8[Array, "cells"]
    points: Int8[Array, "cells"]
    transmissions: Bool[Array, "slots"]
    type: Int8[Array, "slots"]


def draw(game: Game, draws: Draws) -> Unseen:
    """Draws the contents of question blocks, and the types of transmissions."""
    board, cells = game.board, np.arange(NUM_CELLS)
    known = jnp.where(board.question.flags(), NO_PROGRAM, board.program)
    taken = (known[:, None] == np.arange(NUM_PROGRAMS)).any(axis=0)
    has_program = board.question.flags() & (draws.below(2, Use.BLOCK_KIND, cells) == 0)
    program = different_programs(draws, pack(has_program), taken)
    points = 1 + draws.below(MAX_POINTS, Use.POINTS, cells)
    return Unseen(
        board.question,
        jnp.where(has_program, program, NO_PROGRAM).astype(jnp.int8),
        jnp.where(has_program, 0, points).astype(jnp.int8),
        game.entities.is_transmission,
        draws.below(NUM_TYPES, Use.SPAWN_TYPE, np.arange(MAX_ENTITIES)).astype(jnp.int8),
    )


def put(game: Game, unseen: Unseen) -> Game:
    """Puts what was drawn into a position: the one it was drawn for, or an earlier one."""
    board, table = game.board, game.entities
    drawn = board.question & unseen.blocks
    here = drawn.flags()
    has_program = pack(here & (unseen.program != NO_PROGRAM))
    program = jnp.where(here, unseen.program, board.program)
    points = jnp.where(here, unseen.points, board.points)
    full = _spawns(program, points) - _reductions(board)
    spawn_count = jnp.where(here, jnp.maximum(full, 0), board.spawn_count)
    board = replace(
        board,
        data=(board.data & ~drawn) | (drawn & ~has_program),
        program_blocks=(board.program_blocks & ~drawn) | has_program,
        program=program,
        points=points,
        spawn_count=spawn_count,
    )
    types = jnp.where(table.is_transmission & unseen.transmissions, unseen.type, table.type)
    return replace(game, board=board, entities=replace(table, type=types))


def _spawns(program: Int8[Array, "cells"], points: Int8[Array, "cells"]) -> Int8[Array, "cells"]:
    """The transmissions that a new block brings."""
    return jnp.asarray(_SPAWN_COUNTS)[program] + points


def _reductions(board: Board) -> Int8[Array, ""]:
    """How often REDUC was run in this stage, as far as the blocks show it."""
    whole = (board.blocks & ~board.siphoned).flags()
    lost = _spawns(board.program, board.points) - board.spawn_count
    return largest(jnp.where(whole, lost, jnp.int8(0)))


def move_cryptogs(game: Game, draws: Draws) -> Game:
    """Moves the cryptogs out of sight to different cells that are out of sight and have room."""
    table, player = game.entities, game.player
    unseen = table.is_enemy & ~visible_enemies(game)
    others = table.cells_of((table.kind != FREE) & ~unseen)
    in_sight = row(player.row) | column(player.col)
    room = (~(in_sight | others | game.board.blocks | single(player.cell))).flags()
    words = draws.word(Use.SPAWN_CELL, np.arange(NUM_CELLS))
    # In a random order of the cells, the n-th with room is for the n-th cryptog.
    rank = jnp.where(room, total(room[None, :] & (words[None, :] < words[:, None])), NUM_CELLS)
    number = total(unseen[None, :] & (np.arange(MAX_ENTITIES) < np.arange(MAX_ENTITIES)[:, None]))
    is_its = unseen[:, None] & (rank[None, :] == number[:, None])
    cell = total(jnp.where(is_its, np.arange(NUM_CELLS), 0)).astype(jnp.int8)
    cell = jnp.where(is_its.any(axis=-1), cell, table.cell)
    return replace(game, entities=replace(table, cell=cell))
