"""UNDO's stack: the newest positions of this stage, each packed into one row of words.

One row is one contiguous write and one contiguous read, whatever a position is made of.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Int, UInt32

from hackmatrix.entities import Entities
from hackmatrix.state import Board, History, Player, State, blank_state, choose, replace
from ppo_mask.env import rarely


class Snapshot(NamedTuple):
    """What UNDO restores."""

    player: Player
    board: Board
    entities: Entities
    turn: Int[Array, ""]
    owned: UInt32[Array, ""]
    show: Bool[Array, ""]
    calm: Bool[Array, ""]
    atk_uses: Int[Array, ""]


def snapshot(state: State) -> Snapshot:
    """What UNDO would restore, were this position the newest in the history."""
    return Snapshot(
        state.player,
        state.board,
        state.entities,
        state.turn,
        state.owned,
        state.show,
        state.calm,
        state.atk_uses,
    )


def push(state: State, condition: Bool[Array, ""]) -> History:
    """The history with the position on top, where the condition holds; the oldest may drop out."""
    history = state.history
    depth = history.rows.shape[0]
    newest = jnp.where(condition, (history.newest + 1) % depth, history.newest)
    # An index past the end writes nothing.
    rows = history.rows.at[jnp.where(condition, newest, depth)].set(
        pack(snapshot(state)), mode="drop"
    )
    length = jnp.where(condition, jnp.minimum(history.length + 1, depth), history.length)
    return History(rows, length, newest)


def undo(state: State, condition: Bool[Array, ""]) -> State:
    """The newest position, which comes off the history, where the condition holds."""
    history = state.history
    depth = history.rows.shape[0]
    nothing = jnp.zeros(SNAPSHOT_WORDS, jnp.uint32)
    row = rarely(condition, lambda h: h.rows[h.newest], history, nothing)
    current = snapshot(state)
    history = replace(
        history,
        length=history.length - condition,
        newest=jnp.where(condition, (history.newest - 1) % depth, history.newest),
    )
    kept = choose(condition, unpack(row), current)
    return replace(state, history=history, **kept._asdict())


def pack(kept: Snapshot) -> UInt32[Array, " words"]:
    """A snapshot as words: its arrays' bytes, one after another."""
    return jnp.concatenate([_to_words(leaf) for leaf in jax.tree.leaves(kept)])


def unpack(words: UInt32[Array, " words"]) -> Snapshot:
    """The snapshot that :func:`pack` packed."""
    leaves, structure = jax.tree.flatten(_LIKE)
    parts, start = [], 0
    for leaf in leaves:
        size = num_words(leaf)
        parts.append(_from_words(words[start : start + size], leaf))
        start += size
    return jax.tree.unflatten(structure, parts)


def num_words(leaf: jax.ShapeDtypeStruct) -> int:
    """The words that an array takes: a flag on its own takes a whole one."""
    itemsize = 1 if leaf.shape else 4
    return max(1, leaf.size * max(leaf.dtype.itemsize, itemsize) // 4)


def _to_words(leaf: Array) -> UInt32[Array, " words"]:
    if leaf.dtype == jnp.bool_:
        leaf = leaf.astype(jnp.int8 if leaf.shape else jnp.uint32)
    if leaf.dtype.itemsize < 4:
        leaf = leaf.reshape(-1, 4 // leaf.dtype.itemsize)
    return lax.bitcast_convert_type(leaf, jnp.uint32).reshape(-1)


def _from_words(words: UInt32[Array, " words"], like: jax.ShapeDtypeStruct) -> Array:
    if like.dtype == jnp.bool_:
        carrier = jnp.dtype(jnp.int8 if like.shape else jnp.uint32)
    else:
        carrier = like.dtype
    return lax.bitcast_convert_type(words, carrier).reshape(like.shape).astype(like.dtype)


_LIKE = jax.eval_shape(lambda: snapshot(blank_state(1, 1)))
SNAPSHOT_WORDS = sum(num_words(leaf) for leaf in jax.tree.leaves(_LIKE))
