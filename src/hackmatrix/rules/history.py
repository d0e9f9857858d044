"""UNDO's stack: a ring of the newest positions of this stage, as they are kept."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from hackmatrix.rules.batching import anywhere
from hackmatrix.rules.game import Game, choose, replace
from hackmatrix.rules.programs import Program, owned_flags
from hackmatrix.rules.state import LIKE, PLAYER, Kept, keep, with_fields_of

Rows = Kept
"""Positions, each array with an axis more in front."""


# Of the numbers; the board and the entities are as they were, too.
_UNDONE = (*PLAYER, "turn", "owned", "show", "calm", "atk_uses")


def no_rows(depth: int) -> Rows:
    """A history with nothing in it."""
    return jax.tree.map(lambda x: jnp.zeros((depth, *x.shape), x.dtype), LIKE)


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


def push(rows: Rows, kept: Kept, game: Game, condition: Bool[Array, ""]) -> Rows:
    """The history with the position, packed, in the place that :func:`count` gave it.

    In a stage in which UNDO can't be run any more nothing is written, for nobody will read it.
    """
    owned = owned_flags(game.owned)[Program.UNDO]
    needed = condition & (owned | anywhere(game.board.program == Program.UNDO))
    # An index past the end writes nothing.
    place = jnp.where(needed, game.undo_newest, depth(rows))
    return jax.tree.map(lambda row, x: row.at[place].set(x, mode="drop"), rows, kept)


def undo(game: Game, rows: Rows, condition: Bool[Array, ""]) -> Kept:
    """The game, packed; where the condition holds, the newest position in its place.

    That comes off the history, and what UNDO leaves alone stays.
    """
    places = depth(rows)
    before = lax.rem(game.undo_newest + (places - 1), places)
    newest = jnp.where(condition, before, game.undo_newest)
    kept = keep(replace(game, undo_newest=newest, undo_length=game.undo_length - condition))
    old = jax.tree.map(lambda row: row[game.undo_newest], rows)
    return choose(condition, with_fields_of(kept, old, _UNDONE), kept)
