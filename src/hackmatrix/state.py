"""A game as it lies in memory between two steps: few arrays, several small numbers to a word.

For a compiler every array of a state is a kernel of its own wherever states are chosen between,
copied, gathered or written; sixty small arrays are most of what it has to do. So a position is
taken apart (:attr:`Kept.game`), played, and put together again (:func:`keep`).
"""

import operator
from functools import reduce
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer
from jaxtyping import Array, Bool, UInt16, UInt32

from hackmatrix.batching import side_by_side
from hackmatrix.entities import MAX_ENTITIES, Entities, Occupied
from hackmatrix.game import Board, Game, Player, build
from hackmatrix.planes import NUM_CELLS, Plane

# The fields of each word of a game's numbers, lowest bits first, and their widths. What grows with
# the length of a game has a word of its own.
_WORDS = (
    {
        "cell": 6,
        "exit": 6,
        "exit_distance": 6,
        "stage": 4,
        "hp": 2,
        "show": 1,
        "calm": 1,
        "step_pending": 1,
    },
    {"attack": 16, "data_siphons": 16},
    {"atk_uses": 16, "interval": 16},
    {"pending": 16, "arrivals": 16},
    {"undo_length": 16, "undo_newest": 16},
    {"credits": 32},
    {"energy": 32},
    {"score": 32},
    {"turn": 32},
    {"next_task": 32},
    {"births": 32},
    {"steps": 32},
    {"owned": 32},
)
_PLAYER = ("cell", "hp", "credits", "energy", "data_siphons", "score", "attack")
_PLANES = ("data", "program_blocks", "question", "pickups", "exits", "siphoned", "centers")
_CELL = {"points": 4, "program": 5, "spawn_count": 4, "credits": 4, "energy": 4}
_FACTS = {
    "cell": 6,
    "kind": 2,
    "type": 2,
    "hp": 2,
    "stunned": 1,
    "from_siphon": 1,
    "from_task": 1,
}
_FLAGS = ("show", "calm", "step_pending", "stunned", "from_siphon", "from_task")
MAX_UNDO_DEPTH = (1 << 16) - 1


class Kept(eqx.Module):
    """One position of one game, packed.

    Attributes:
        numbers: the game's and the player's, and the board's sets of cells, two words each.
        cells: the board's numbers, a word a cell.
        facts: what is small of an entity.
        wait: the turns of a transmission, of which an enemy has none, and for how many an enemy is
            disabled, as no transmission is; see :class:`hackmatrix.entities.Entities`.
        order: list order.
    """

    numbers: UInt32[Array, " numbers"]
    cells: UInt32[Array, " cells"]
    facts: UInt16[Array, " slots"]
    wait: UInt16[Array, " slots"]
    order: UInt32[Array, " slots"]

    @property
    @jax.jit  # Traced once for its many uses.
    def game(self) -> Game:
        """The position, taken apart; of a batch, with its leading axes."""
        numbers: dict[str, Any] = {}
        for i, widths in enumerate(_WORDS):
            numbers |= _split(self.numbers[..., i], widths)
        planes = [self.numbers[..., i] for i in range(len(_WORDS), self.numbers.shape[-1])]
        board = {name: Plane(*planes[2 * i : 2 * i + 2]) for i, name in enumerate(_PLANES)}
        cells = _bytes(_split(self.cells, _CELL))
        cells["program"] -= 1
        return build(
            Game,
            player=build(Player, **{name: numbers.pop(name) for name in _PLAYER}),
            board=build(Board, **board, **cells),
            entities=build(
                Entities,
                **_bytes(_split(self.facts, _FACTS)),
                disabled=self.wait.astype(jnp.int8),
                turns=self.wait.astype(jnp.int16),
                order=self.order,
            ),
            owned=numbers.pop("owned").astype(jnp.uint32),
            **numbers,
        )


class State(eqx.Module):
    """One position of one game, and the positions of this stage that UNDO can go back to.

    ``state.game`` has the position's fields by name.

    Attributes:
        kept: the position.
        valid: which actions can be taken in it.
        occupied: where its entities are.
        history: a ring of positions, a row of words each; see :mod:`hackmatrix.history`.
    """

    kept: Kept
    valid: Bool[Array, " actions"]
    occupied: Occupied
    history: UInt32[Array, "depth row"]

    @property
    def game(self) -> Game:
        """The position, taken apart."""
        return self.kept.game

    def __str__(self) -> str:
        """The board, as a person reads it; of a batch or inside compiled code, its structure."""
        if self.kept.order.ndim > 1 or isinstance(self.kept.order, Tracer):
            return repr(self)
        from hackmatrix.render.text import text  # it is built on top of this module

        return text(self)

    def _repr_svg_(self) -> str | None:
        """A notebook's picture of one position."""
        if self.kept.order.ndim > 1 or isinstance(self.kept.order, Tracer):
            return None
        from hackmatrix.render.svg import svg

        return svg(self)


@jax.jit
def keep(game: Game) -> Kept:
    """The position, packed."""
    board, table = game.board, game.entities
    fields = vars(game) | vars(game.player)
    words = [_join(fields, widths, jnp.uint32) for widths in _WORDS]
    words += [word for name in _PLANES for word in getattr(board, name)]
    wait = jnp.where(table.is_enemy, table.disabled.astype(jnp.int16), table.turns)
    return Kept(
        numbers=side_by_side(words),
        cells=_join(vars(board) | {"program": board.program + 1}, _CELL, jnp.uint32),
        facts=_join(vars(table), _FACTS, jnp.uint16),
        wait=wait.astype(jnp.uint16),
        order=table.order,
    )


_LIKE = build(
    Kept,
    numbers=np.zeros(len(_WORDS) + 2 * len(_PLANES), np.uint32),
    cells=np.zeros(NUM_CELLS, np.uint32),
    facts=np.zeros(MAX_ENTITIES, np.uint16),
    wait=np.zeros(MAX_ENTITIES, np.uint16),
    order=np.zeros(MAX_ENTITIES, np.uint32),
)
ROW_WORDS = sum(x.nbytes for x in jax.tree.leaves(_LIKE)) // 4


def to_row(kept: Kept) -> UInt32[Array, " row"]:
    """A position as one row of words: its arrays' bytes, one after another."""
    parts = [lax.bitcast_convert_type(_by_fours(x), jnp.uint32) for x in jax.tree.leaves(kept)]
    return jnp.concatenate([part.reshape(-1) for part in parts])


def from_row(row: UInt32[Array, " row"]) -> Kept:
    """The position that :func:`to_row` made a row of."""
    leaves, start = [], 0
    for x in jax.tree.leaves(_LIKE):
        words = row[start : start + x.nbytes // 4]
        leaves.append(lax.bitcast_convert_type(words, x.dtype).reshape(x.shape))
        start += words.size
    return jax.tree.unflatten(jax.tree.structure(_LIKE), leaves)


def _by_fours(x: Array) -> Array:
    """Grouped so that each group has four bytes."""
    return x if x.dtype.itemsize == 4 else x.reshape(-1, 4 // x.dtype.itemsize)


def _bytes(fields: dict[str, Array]) -> dict[str, Array]:
    """The fields, numbers as bytes."""
    return {
        name: value if name in _FLAGS else value.astype(jnp.int8) for name, value in fields.items()
    }


def _join(values: dict[str, Any], widths: dict[str, int], dtype: Any) -> Array:
    """The fields next to each other in one number."""
    parts: list[Array] = []
    shift = 0
    for name, width in widths.items():
        value = values[name].astype(dtype)
        # Of what has no meaning, such as a free slot's hp, any bits may be set.
        part = value if width == 32 else value & ((1 << width) - 1)
        parts.append(part << shift if shift else part)
        shift += width
    return reduce(operator.or_, parts)


def _split(number: Any, widths: dict[str, int]) -> dict[str, Any]:
    """The fields that :func:`_join` joined, of a JAX or NumPy array: flags, and int32 numbers."""
    fields: dict[str, Any] = {}
    shift = 0
    for name, width in widths.items():
        part = number >> shift if shift else number
        part = part if width == 32 else part & ((1 << width) - 1)
        fields[name] = part != 0 if name in _FLAGS else part.astype(jnp.int32)
        shift += width
    return fields
