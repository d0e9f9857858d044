"""A game in memory between two steps: a few arrays, with several small numbers in each word.

Selecting, copying, gathering or writing states takes a kernel for each array, and with sixty small
arrays these kernels would be most of the compiled program. So a step unpacks a position
(:attr:`Packed.game`), plays, and packs the next position (:func:`pack`).
"""

from collections.abc import Collection, Iterator, Sequence
from functools import singledispatch
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, UInt16, UInt32

from hackmatrix.rules.batching import join_in_pairs, stack_scalars, with_entries
from hackmatrix.rules.entities import Entities, Occupied
from hackmatrix.rules.game import Board, Game, Player, build
from hackmatrix.rules.planes import NUM_CELLS, Plane
from ppo_mask.jax_tools import number_settings

# The fields of each word of numbers, lowest bits first, with their widths. Moves and enemy turns
# change the first group; only spawns, siphons, programs and new stages change the slow group.
#
# No number wraps around. In a field of less than 16 bits, all values fit. A field of 16 bits
# saturates (:func:`_join`). A number that grows all game long has a word of its own. Of these
# numbers, steps and turns saturate, and births restart (:mod:`hackmatrix.rules.spawning`). The
# others have at most 15 bits in a loaded position, and no game lasts until they reach 32 bits.
_NUMBERS = (
    {"cell": 6, "exit": 6, "stage": 4, "hp": 2, "show": 1, "calm": 1, "step_pending": 1},
    {"attack": 16, "data_siphons": 16},
    {"pending": 16, "arrivals": 16},
    {"undo_length": 16, "undo_newest": 16},
    {"turn": 32},
    {"steps": 32},
)
_SLOW = (
    {"atk_uses": 16, "interval": 16},
    {"credits": 32},
    {"energy": 32},
    {"score": 32},
    {"next_task": 32},
    {"births": 32},
    {"owned": 32},
)
_SPAWNED = ("pending", "next_task", "births")  # what spawns change
# Sets of cells, two words each, after the numbers.
_PLANES = ("pickups",)
_SLOW_PLANES = ("data", "program_blocks", "question", "exits", "siphoned", "centers")
PLAYER = ("cell", "hp", "credits", "energy", "data_siphons", "score", "attack")
_CELL = {"points": 4, "program": 5, "spawn_count": 4, "credits": 4, "energy": 4, "exit_steps": 6}
_FACTS = {"cell": 6, "kind": 2, "type": 2, "hp": 2, "stunned": 1, "from_siphon": 1, "from_task": 1}
_SATURATED = 16  # bits
_FLAGS = ("show", "calm", "step_pending", "stunned", "from_siphon", "from_task")
MAX_UNDO_DEPTH = (1 << 16) - 1
_Words = Sequence[dict[str, int]]
_ALL = (1 << 32) - 1


class Packed(eqx.Module):
    """One position of one game, packed.

    Attributes:
        numbers: the numbers and sets of cells that a move may change.
        slow: a word for each cell, then the other numbers and sets of cells; most steps do not
            change or read ``slow``.
        facts: the small fields of each entity.
        wait: a transmission's ``turns`` or an enemy's ``disabled``; see
            :class:`hackmatrix.rules.entities.Entities`.
        order: for each entity, the stamp that sorts it in list order.
    """

    numbers: UInt32[Array, " numbers"]
    slow: UInt32[Array, " slow"]
    facts: UInt16[Array, " slots"]
    wait: UInt16[Array, " slots"]
    order: UInt32[Array, " slots"]

    @property
    @jax.jit  # Traced once for its many uses.
    @number_settings()
    def game(self) -> Game:
        """The position, unpacked; for a batch, with its leading axes."""
        numbers, planes = _fields_of(self.numbers, _NUMBERS, _PLANES)
        others, other_planes = _fields_of(self.slow[..., NUM_CELLS:], _SLOW, _SLOW_PLANES)
        numbers |= others
        cells = _split(self.slow[..., :NUM_CELLS], _CELL, jnp.int8)
        cells["program"] -= 1
        return build(
            Game,
            player=build(Player, **{name: numbers.pop(name) for name in PLAYER}),
            board=build(Board, **planes, **other_planes, **cells),
            entities=build(
                Entities,
                **_split(self.facts, _FACTS, jnp.int8),
                disabled=self.wait.astype(jnp.int8),
                turns=self.wait.astype(jnp.int16),
                order=self.order,
            ),
            owned=numbers.pop("owned").astype(jnp.uint32),
            **numbers,
        )


# A state must not import :mod:`hackmatrix.render`, which draws states. So the functions that draw
# register themselves here when :mod:`hackmatrix` imports them.


@singledispatch
def as_text(shown: object) -> str | None:
    """The text that shows an object in a terminal; None if no function is registered for it."""
    del shown


@singledispatch
def as_svg(shown: object) -> str | None:
    """The SVG image that shows an object in a notebook; None if no function is registered."""
    del shown


class State(eqx.Module):
    """One position of one game, and the positions of this stage that UNDO can go back to.

    ``state.game`` has the position's fields by name.

    Attributes:
        packed: the position.
        valid: which actions are valid in the position.
        occupied: where the position's entities are.
        ground: the observation of the board without entities; see
            :func:`hackmatrix.observation.ground_words`.
        history: a ring of positions; see :mod:`hackmatrix.rules.history`.
    """

    packed: Packed
    valid: Bool[Array, " actions"]
    occupied: Occupied
    ground: UInt32[Array, "words cells"]
    history: Packed

    @property
    def game(self) -> Game:
        """The position, unpacked."""
        return self.packed.game

    def __str__(self) -> str:
        """The board as text; for a batch, or inside compiled code, the arrays' shapes."""
        return (as_text(self) if self._is_one else None) or repr(self)

    def _repr_svg_(self) -> str | None:
        """The SVG image of one position, which notebooks show."""
        return as_svg(self) if self._is_one else None

    @property
    def _is_one(self) -> bool:
        """Whether this is one position, not a batch, and outside compiled code."""
        return self.packed.order.ndim == 1 and not isinstance(self.packed.order, Tracer)


@jax.jit
def pack(game: Game) -> Packed:
    """Packs a position."""
    board = game.board
    cells = _join(vars(board) | {"program": board.program + 1}, _CELL, jnp.uint32)
    others = _words_of(game, _SLOW, _SLOW_PLANES)
    return pack_moved(game, jnp.concatenate([cells, others]))


@jax.jit
def pack_moved(game: Game, slow: UInt32[Array, " slow"]) -> Packed:
    """Packs a position that only moves have changed, with ``slow`` from before the moves."""
    return _packed(_words_of(game, _NUMBERS, _PLANES), slow, game.entities)


@jax.jit
def pack_spawned(game: Game, packed: Packed) -> Packed:
    """Packs a position that differs from ``packed`` only by spawns."""

    def renewed(numbers: Array, words: _Words, first: int = 0) -> Array:
        changed = (
            (place, _join(vars(game), widths, jnp.uint32))
            for place, widths in enumerate(words, start=first)
            if not widths.keys().isdisjoint(_SPAWNED)
        )
        return with_entries(numbers, changed)

    numbers = renewed(packed.numbers, _NUMBERS)
    return _packed(numbers, renewed(packed.slow, _SLOW, NUM_CELLS), game.entities)


def _packed(
    numbers: UInt32[Array, " numbers"], slow: UInt32[Array, " slow"], table: Entities
) -> Packed:
    wait = jnp.where(table.is_enemy, table.disabled.astype(jnp.int16), table.turns)
    return Packed(
        numbers=numbers,
        slow=slow,
        facts=_join(vars(table), _FACTS, jnp.uint16),
        wait=wait.astype(jnp.uint16),
        order=table.order,
    )


def with_fields_of(packed: Packed, other: Packed, names: Collection[str]) -> Packed:
    """The position, with the board, the entities and the named numbers taken from ``other``."""
    slow = [np.full(NUM_CELLS, _ALL, np.uint32), _mask(_SLOW, _SLOW_PLANES, names)]
    return Packed(
        numbers=_exchanged(packed.numbers, other.numbers, _mask(_NUMBERS, _PLANES, names)),
        slow=_exchanged(packed.slow, other.slow, np.concatenate(slow)),
        facts=other.facts,
        wait=other.wait,
        order=other.order,
    )


def _mask(words: _Words, planes: Sequence[str], names: Collection[str]) -> np.ndarray:
    """Makes a mask of the named numbers and all sets of cells, laid out like :func:`_words_of`."""
    masks = [
        sum(
            ((1 << width) - 1) << shift for name, shift, width in _laid_out(widths) if name in names
        )
        for widths in words
    ]
    return np.array(masks + [_ALL] * 2 * len(planes), np.uint32)


def _exchanged(
    words: UInt32[Array, " n"], other: UInt32[Array, " n"], mask: np.ndarray
) -> UInt32[Array, " n"]:
    """``words``, with the bits in ``mask`` taken from ``other``."""
    return words ^ ((words ^ other) & mask)


def _words_of(game: Game, words: _Words, planes: Sequence[str]) -> UInt32[Array, " n"]:
    """Packs the fields that ``words`` names; the sets of cells in ``planes`` come after them."""
    fields = vars(game) | vars(game.player)
    numbers = [_join(fields, widths, jnp.uint32) for widths in words]
    return stack_scalars(numbers + [word for name in planes for word in getattr(game.board, name)])


def _fields_of(
    numbers: Array, words: _Words, planes: Sequence[str]
) -> tuple[dict[str, Any], dict[str, Plane]]:
    """The inverse of :func:`_words_of`: fields by name, and sets of cells by name."""
    fields: dict[str, Any] = {}
    for i, widths in enumerate(words):
        fields |= _split(numbers[..., i], widths, jnp.int32)
    halves = [numbers[..., i] for i in range(len(words), numbers.shape[-1])]
    return fields, {name: Plane(*halves[2 * i : 2 * i + 2]) for i, name in enumerate(planes)}


def _laid_out(widths: dict[str, int]) -> Iterator[tuple[str, int, int]]:
    """Each field's name, the place of its lowest bit in the number, and its width."""
    shift = 0
    for name, width in widths.items():
        yield name, shift, width
        shift += width


def _join(values: dict[str, Any], widths: dict[str, int], dtype: Any) -> Array:
    """Packs fields next to each other into one number."""
    parts: list[Array] = []
    for name, shift, width in _laid_out(widths):
        value = values[name].astype(dtype)
        part = value
        if width == _SATURATED:
            part = jnp.minimum(value, (1 << width) - 1)
        elif width < _SATURATED:  # Drops bits of meaningless values, like a free slot's hp.
            part = value & ((1 << width) - 1)
        parts.append(part << shift if shift else part)
    return join_in_pairs(parts)


def _split(number: Array, widths: dict[str, int], dtype: Any) -> dict[str, Array]:
    """The inverse of :func:`_join`: booleans for flags, and numbers of the given dtype."""
    fields: dict[str, Array] = {}
    for name, shift, width in _laid_out(widths):
        part = number >> shift if shift else number
        part = part if width == 32 else part & ((1 << width) - 1)
        fields[name] = part != 0 if name in _FLAGS else part.astype(dtype)
    return fields
