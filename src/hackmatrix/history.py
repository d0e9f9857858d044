"""UNDO's stack: the newest positions of this stage, each as one row of words.

One row is one contiguous write and one contiguous read, whatever a position is made of.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt32

from hackmatrix.game import Game, choose, replace
from hackmatrix.state import ROW_WORDS, Kept, from_row, to_row
from ppo_mask.env import rarely

Rows = UInt32[Array, "depth row"]


def no_rows(depth: int) -> Rows:
    """A history with nothing in it."""
    return jnp.zeros((depth, ROW_WORDS), jnp.uint32)


def count(game: Game, depth: int, condition: Bool[Array, ""]) -> Game:
    """The game with one more position in its history, where the condition holds.

    The oldest may drop out. The position itself is written by :func:`push`.
    """
    newest = jnp.where(condition, (game.undo_newest + 1) % depth, game.undo_newest)
    length = jnp.where(condition, jnp.minimum(game.undo_length + 1, depth), game.undo_length)
    return replace(game, undo_newest=newest, undo_length=length)


def push(rows: Rows, game: Game, kept: Kept, condition: Bool[Array, ""]) -> Rows:
    """The history with the game, as it is kept, in the place that :func:`count` gave it."""
    # An index past the end writes nothing.
    place = jnp.where(condition, game.undo_newest, rows.shape[0])
    return rows.at[place].set(to_row(kept), mode="drop")


def undo(game: Game, rows: Rows, condition: Bool[Array, ""]) -> Game:
    """The newest position, which comes off the history, where the condition holds."""
    operand = (rows, game.undo_newest)
    row = rarely(condition, lambda x: x[0][x[1]], operand, jnp.zeros(ROW_WORDS, jnp.uint32))
    old = from_row(row).game
    restored = replace(
        game,
        player=old.player,
        board=old.board,
        entities=old.entities,
        turn=old.turn,
        owned=old.owned,
        show=old.show,
        calm=old.calm,
        atk_uses=old.atk_uses,
        undo_length=game.undo_length - 1,
        undo_newest=(game.undo_newest - 1) % rows.shape[0],
    )
    return choose(condition, restored, game)
