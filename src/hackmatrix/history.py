"""UNDO's stack: the newest positions of this stage, each as one row of words.

One row is one contiguous write and one contiguous read, whatever a position is made of.
"""

import jax.numpy as jnp
from jaxtyping import Array, Bool, UInt32

from hackmatrix.game import Game, replace
from hackmatrix.state import PLAYER, ROW_WORDS, Kept, from_row, join_numbers, split_numbers, to_row
from ppo_mask.env import rarely

# Of a position's numbers; its board and its entities are restored whole.
_RESTORED = (*PLAYER, "turn", "owned", "show", "calm", "atk_uses")

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


def undo(kept: Kept, rows: Rows, condition: Bool[Array, ""]) -> Kept:
    """The newest position, which comes off the history, where the condition holds."""
    return rarely(condition, _undone, (kept, rows), kept)


def _undone(operand: tuple[Kept, Rows]) -> Kept:
    kept, rows = operand
    now = split_numbers(kept.numbers)
    old = from_row(rows[now["undo_newest"]])
    before = split_numbers(old.numbers)
    numbers = now | {name: before[name] for name in _RESTORED}
    numbers["undo_length"] = now["undo_length"] - 1
    numbers["undo_newest"] = (now["undo_newest"] - 1) % rows.shape[0]
    return replace(old, numbers=join_numbers(numbers))
