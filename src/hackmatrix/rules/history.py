"""UNDO's stack: a ring buffer of the newest positions of this stage, packed."""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool

from hackmatrix.rules.batching import anywhere
from hackmatrix.rules.game import Game, choose, replace
from hackmatrix.rules.programs import Program, owned_flags
from hackmatrix.rules.state import PLAYER, Packed, pack, with_fields_of

Rows = Packed
"""Packed positions, stacked along a leading axis."""


# The numbers that UNDO restores, besides the board and the entities.
_UNDONE = (*PLAYER, "turn", "owned", "show", "calm", "atk_uses")


def no_rows(like: Packed, depth: int) -> Rows:
    """Makes an empty history with room for ``depth`` positions of the shapes in ``like``."""
    return jax.tree.map(lambda x: jnp.zeros((depth, *x.shape), x.dtype), like)


def depth(rows: Rows) -> int:
    """How many positions a history can hold."""
    return rows.order.shape[-2]


def count(game: Game, depth: int, condition: Bool[Array, ""]) -> Game:
    """Where the condition holds, makes room for a position; a full history drops its oldest.

    :func:`push` then writes the position.
    """
    newest = jnp.where(condition, lax.rem(game.undo_newest + 1, depth), game.undo_newest)
    length = jnp.where(condition, jnp.minimum(game.undo_length + 1, depth), game.undo_length)
    return replace(game, undo_newest=newest, undo_length=length)


def is_kept(game: Game) -> Bool[Array, ""]:
    """Whether the player owns UNDO or can get it in this stage."""
    owned = owned_flags(game.owned)[Program.UNDO]
    return owned | anywhere(game.board.program == Program.UNDO)


def push(rows: Rows, packed: Packed, game: Game, condition: Bool[Array, ""]) -> Rows:
    """Where the condition holds, writes the position to the place that :func:`count` chose.

    Writes nothing if the history is not kept.
    """
    needed = condition & is_kept(game)
    # An index past the end writes nothing.
    place = jnp.where(needed, game.undo_newest, depth(rows))
    return jax.tree.map(lambda row, x: row.at[place].set(x, mode="drop"), rows, packed)


def undo(game: Game, rows: Rows, condition: Bool[Array, ""]) -> Packed:
    """Returns the newest position in ``rows``, packed, or ``game`` if the condition is False.

    The restored position leaves the history. Fields that UNDO does not restore stay as they are.
    """
    places = depth(rows)
    before = lax.rem(game.undo_newest + (places - 1), places)
    newest = jnp.where(condition, before, game.undo_newest)
    packed = pack(replace(game, undo_newest=newest, undo_length=game.undo_length - condition))
    old = jax.tree.map(lambda row: row[game.undo_newest], rows)
    return choose(condition, with_fields_of(packed, old, _UNDONE), packed)
