"""UNDO's stack: a ring of the newest positions of this stage, packed."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from hackmatrix.rules.batching import anywhere
from hackmatrix.rules.game import Game, choose, replace
from hackmatrix.rules.programs import Program, owned_flags
from hackmatrix.rules.state import PLAYER, Packed, pack, with_fields_of

Rows = Packed
"""Positions, each array with an axis more in front."""


# The numbers that UNDO restores, beside the board and the entities.
_UNDONE = (*PLAYER, "turn", "owned", "show", "calm", "atk_uses")


def no_rows(like: Packed, depth: int) -> Rows:
    """A history with nothing in it, with room for so many positions like one."""
    return jax.tree.map(lambda x: jnp.zeros((depth, *x.shape), x.dtype), like)


def depth(rows: Rows) -> int:
    """How many positions there is room for."""
    return rows.order.shape[-2]


def count(game: Game, depth: int, condition: Bool[Array, ""]) -> Game:
    """The game with one more position in its history, where the condition holds.

    The oldest may drop out. The position itself is written by :func:`push`.
    """
    newest = jnp.where(condition, lax.rem(game.undo_newest + 1, depth), game.undo_newest)
    length = jnp.where(condition, jnp.minimum(game.undo_length + 1, depth), game.undo_length)
    return replace(game, undo_newest=newest, undo_length=length)


def push(rows: Rows, packed: Packed, game: Game, condition: Bool[Array, ""]) -> Rows:
    """The history with the position in the place that :func:`count` gave it.

    Nothing is written in a stage in which UNDO cannot be run any more: nobody would read it.
    """
    owned = owned_flags(game.owned)[Program.UNDO]
    needed = condition & (owned | anywhere(game.board.program == Program.UNDO))
    # An index past the end writes nothing.
    place = jnp.where(needed, game.undo_newest, depth(rows))
    return jax.tree.map(lambda row, x: row.at[place].set(x, mode="drop"), rows, packed)


def undo(game: Game, rows: Rows, condition: Bool[Array, ""]) -> Packed:
    """The game, packed. Where the condition holds, it goes back to the newest position.

    That position comes off the history; what UNDO leaves alone stays as it is.
    """
    places = depth(rows)
    before = lax.rem(game.undo_newest + (places - 1), places)
    newest = jnp.where(condition, before, game.undo_newest)
    packed = pack(replace(game, undo_newest=newest, undo_length=game.undo_length - condition))
    old = jax.tree.map(lambda row: row[game.undo_newest], rows)
    return choose(condition, with_fields_of(packed, old, _UNDONE), packed)
