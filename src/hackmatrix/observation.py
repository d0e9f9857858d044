"""What the player sees: 1,545 numbers, or their compact form in a twentieth of the memory.

Each number of an observation is an integer divided by a constant. The compact form stores the
integers: the player's numbers, and two 32-bit words for each cell, which hold its 42 channels as
bit fields.
"""

from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Integer, UInt16, UInt32

from hackmatrix.rules.batching import join, materialize, stack_scalars, total
from hackmatrix.rules.entities import CRYPTOG, NUM_TYPES, TYPES, first_on_each
from hackmatrix.rules.game import MAX_HP, NUM_STAGES, Board, Game
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane, column, pack, row
from hackmatrix.rules.programs import CARDS, NUM_PROGRAMS, owned_flags
from ppo_mask.jax_tools import number_settings, rarely


class PlayerNumber(NamedTuple):
    """How an observation scales one of the player's numbers: ``(value - least) / span``.

    Attributes:
        name: the value's name.
        least: the value that becomes 0.
        span: the difference from ``least`` that becomes 1.
        cut: whether results above 1 become 1.
        limited: whether the result never exceeds 1; if not, ``value`` is any 16-bit integer.
    """

    name: str
    least: int = 0
    span: int = 1
    cut: bool = False
    limited: bool = True

    def steps(self, value: Integer[Array, ""] | Bool[Array, ""]) -> UInt16[Array, ""]:
        """The integer ``value - least``, which is not yet divided by ``span``."""
        steps = value.astype(jnp.int32) - self.least
        return (jnp.minimum(steps, self.span) if self.cut else steps).astype(jnp.uint16)

    def formula(self) -> str:
        """The scaling as text."""
        less = f"({self.name}-{self.least})" if self.least else self.name
        number = less if self.span == 1 else f"{less}/{self.span}"
        return f"min({number}, 1)" if self.cut else number


PLAYER_NUMBERS = (
    PlayerNumber("row", span=SIZE - 1),
    PlayerNumber("col", span=SIZE - 1),
    PlayerNumber("hp", span=MAX_HP),
    PlayerNumber("credits", span=50, cut=True),
    PlayerNumber("energy", span=50, cut=True),
    PlayerNumber("stage", least=1, span=NUM_STAGES - 1),
    PlayerNumber("data_siphons", span=10, limited=False),
    PlayerNumber("attack", least=1, span=2, limited=False),
    PlayerNumber("show"),
    PlayerNumber("calm"),
)
"""The player's numbers, in the order of an observation."""

PLAYER_FEATURES = len(PLAYER_NUMBERS)
CHANNELS = 42
NUM_PLAYER_FEATURES = PLAYER_FEATURES + NUM_PROGRAMS
OBSERVATION_SIZE = NUM_PLAYER_FEATURES + NUM_CELLS * CHANNELS

_ENEMY_BITS = 8  # type, hp, stunned and from_siphon, next to each other in a cell's first word
_MAX_TURNS = 4  # if a transmission has more turns left, this many are shown


class Field(NamedTuple):
    """A bit field in one of a cell's two words: one number, or some adjacent flags."""

    word: int
    shift: int  # of its lowest bit
    flags: int = 1  # number of flags; each is a channel
    width: int = 1  # bits of a number, which is one channel
    largest: int = 1  # the number's largest value, by which it is divided


CELL_FIELDS = {
    "enemy_type": Field(0, 23, flags=NUM_TYPES),
    "enemy_hp": Field(0, 27, width=2, largest=3),
    "stunned": Field(0, 29),
    "from_siphon": Field(0, 30),
    "data": Field(1, 15),
    "program_block": Field(1, 16),
    "question": Field(1, 17),
    "points": Field(1, 0, width=4, largest=9),
    "block_siphoned": Field(1, 18),
    "program": Field(0, 0, flags=NUM_PROGRAMS),
    "spawn_count": Field(1, 4, width=4, largest=9),
    "turns": Field(1, 8, width=3, largest=_MAX_TURNS),
    "credits": Field(1, 11, width=2, largest=3),
    "energy": Field(1, 13, width=2, largest=3),
    "pickup": Field(1, 19),
    "exit": Field(1, 20),
    "center": Field(1, 21),
}
"""The fields of a cell, in the order of their channels."""


# For each channel of a cell: its word, its lowest bit there, its mask, and the divisor that turns
# the integer of `cell_channels` into an entry of a flat observation.
_WORD, _SHIFT, _MASK, CELL_DIVISORS = np.array(
    [
        (field.word, bit, (1 << field.width) - 1, field.largest)
        for field in CELL_FIELDS.values()
        for bit in range(field.shift, field.shift + field.flags)
    ],
    np.uint32,
).T


def bounds() -> tuple[Float[np.ndarray, "observation"], Float[np.ndarray, "observation"]]:
    """The lower and the upper bounds of a flat observation."""
    low = np.zeros(OBSERVATION_SIZE, np.float32)
    high = np.ones(OBSERVATION_SIZE, np.float32)
    for place, number in enumerate(PLAYER_NUMBERS):
        if not number.limited:
            high[place] = ((1 << 16) - 1 - number.least) / number.span
    return low, high


def channels(name: str) -> slice:
    """The indices of a field's channels."""
    flags = {other: field.flags for other, field in CELL_FIELDS.items()}
    start = sum([*flags.values()][: [*flags].index(name)])
    return slice(start, start + flags[name])


class CompactObservation(eqx.Module):
    """An observation in a twentieth of the memory; :func:`expand` makes it flat.

    Attributes:
        player: the player's numbers as integers (:data:`PLAYER_NUMBERS`).
        owned: the programs owned, one bit each.
        cells: two words for each cell, from which :func:`cell_channels` reads the channels.
    """

    player: UInt16[Array, "numbers"]
    owned: UInt32[Array, ""]
    cells: UInt32[Array, "words cells"]

    def player_features(self) -> UInt16[Array, "player_features"]:
        """The player's numbers as integers, and a flag for each program."""
        return jnp.concatenate([self.player, owned_flags(self.owned).astype(jnp.uint16)])

    def plane(self, *names: str) -> Plane:
        """The cells where at least one of the named fields is not 0."""
        bits = np.zeros(2, np.uint32)
        for name in names:
            field = CELL_FIELDS[name]
            bits[field.word] |= ((1 << field.flags * field.width) - 1) << field.shift
        first, second = self.cells
        return pack(((first & bits[0]) | (second & bits[1])) != 0)


class TimeAwareObservation(eqx.Module):
    """An observation with the number of actions taken, which the original game does not show.

    Attributes:
        seen: the observation without ``steps``.
        steps: actions taken in the game, at most 65,535.
    """

    seen: CompactObservation
    steps: UInt16[Array, ""]


def cell_channels(
    words: UInt32[Array, "words cells"], number: slice | np.ndarray = slice(None)
) -> UInt16[Array, "cells channels"]:
    """Channels of all cells as integers.

    Args:
        words: the cells' words.
        number: the channels to read; by default all.
    """
    word = jnp.where(_WORD[number] == 1, words[1, :, None], words[0, :, None])
    return ((word >> _SHIFT[number]) & _MASK[number]).astype(jnp.uint16)


Observation: TypeAlias = Float[Array, "observation"] | CompactObservation | TimeAwareObservation
"""An observation in any of the three forms that :class:`~hackmatrix.HackMatrix` has."""


def compact(
    game: Game, ground: UInt32[Array, "words cells"], among_few: bool = False
) -> CompactObservation:
    """Makes the compact observation of a position.

    Args:
        game: the position.
        ground: the words of the position's board; see :func:`ground_words`.
        among_few: whether the batch is so small that :func:`ppo_mask.jax_tools.rarely` does not
            pay off.
    """
    return CompactObservation(_player_steps(game), game.owned, _cell_words(game, ground, among_few))


def with_time(seen: CompactObservation, game: Game) -> TimeAwareObservation:
    """Adds the number of actions taken to an observation."""
    return TimeAwareObservation(seen, jnp.minimum(game.steps, (1 << 16) - 1).astype(jnp.uint16))


DIVISORS = np.concatenate(
    [
        [number.span for number in PLAYER_NUMBERS],
        np.ones(NUM_PROGRAMS),
        np.tile(CELL_DIVISORS, NUM_CELLS),
    ]
).astype(np.float32)
"""The divisors that turn integers into a flat observation."""


def observation_layout() -> dict[str, Any]:
    """The meaning of each number of a flat observation, for JSON.

    Returns:
        - ``size``: how many numbers there are.
        - ``player``: names of the player's numbers, which come first.
        - ``programs``: names of the programs, which have one number each.
        - ``cells``: how many cells follow, row by row from the bottom left.
        - ``channels``: names and divisors of each cell's numbers.
    """
    names: list[tuple[str, int]] = [("", 0)] * CHANNELS
    for name, field in CELL_FIELDS.items():
        place = range(CHANNELS)[channels(name)]
        several = {"enemy_type": TYPES, "program": tuple(card.name for card in CARDS)}.get(name)
        for n, channel in enumerate(place):
            names[channel] = (f"{name} {several[n]}" if several else name, field.largest)
    return {
        "size": OBSERVATION_SIZE,
        "player": [number.formula() for number in PLAYER_NUMBERS],
        "programs": [card.name for card in CARDS[:NUM_PROGRAMS]],
        "cells": NUM_CELLS,
        "channels": names,
    }


@number_settings()
def expand(observation: Observation) -> Float[Array, "observation"]:
    """The flat form of any observation; leaves out the number of actions taken.

    The player's numbers come first, then a flag for each program, then the cells' channels.
    """
    if isinstance(observation, TimeAwareObservation):
        observation = observation.seen
    if not isinstance(observation, CompactObservation):
        return observation
    # Player and programs become one more row of the grid, padded in front; the padding is cut off
    # at the end. On a CPU, joining rows of integers and converting the result to floats is much
    # cheaper than joining floats of odd lengths.
    padding = CHANNELS - NUM_PLAYER_FEATURES
    first_row = jnp.concatenate([jnp.zeros(padding, jnp.uint16), observation.player_features()])
    rows = jnp.concatenate([first_row[None], cell_channels(observation.cells)])
    whole = materialize(rows, observation.player[0] >= SIZE).reshape(-1)[padding:]
    # By way of int32, which CPUs convert to floats eight or sixteen at a time.
    return whole.astype(jnp.int32).astype(jnp.float32) / DIVISORS


@number_settings()
def compress(observation: Observation) -> CompactObservation:
    """The compact form of any observation; leaves out the number of actions taken."""
    if isinstance(observation, TimeAwareObservation):
        return observation.seen
    if isinstance(observation, CompactObservation):
        return observation
    whole = jnp.round(observation * DIVISORS).astype(jnp.uint32)
    player, owned, cells = jnp.split(whole, [PLAYER_FEATURES, NUM_PLAYER_FEATURES])
    fields = cells.reshape(NUM_CELLS, CHANNELS) << _SHIFT
    in_word = (np.arange(2)[:, None] == _WORD)[:, None]
    return CompactObservation(
        player.astype(jnp.uint16),
        join(owned << np.arange(NUM_PROGRAMS, dtype=np.uint32)),
        join(jnp.where(in_word, fields, 0)),
    )


def _player_steps(game: Game) -> UInt16[Array, "numbers"]:
    player = game.player
    values = {**vars(game), **vars(player), "row": player.row, "col": player.col}
    return stack_scalars([number.steps(values[number.name]) for number in PLAYER_NUMBERS])


def visible_enemies(game: Game) -> Bool[Array, "slots"]:
    """The enemies that the player sees: cryptogs only in the same row or column, or under SHOW."""
    table, player = game.entities, game.player
    lines = row(player.row) | column(player.col)
    return table.is_enemy & ((table.type != CRYPTOG) | game.show | lines.has(table.cell))


def ground_words(board: Board) -> UInt32[Array, "words cells"]:
    """The two words of each cell, without entities; most steps leave these words unchanged."""
    blocks, question = board.blocks.flags(), board.question.flags()
    siphoned = board.siphoned.flags()
    known = blocks & ~question
    ground = ~blocks | siphoned
    program = jnp.uint32(1) << jnp.maximum(board.program, 0).astype(jnp.uint32)
    visible_program = known & board.program_blocks.flags()
    second_word = (
        _field("points", jnp.where(known, board.points, 0))
        | _field("spawn_count", jnp.where(known, board.spawn_count, 0))
        | _field("credits", jnp.where(ground, board.credits, 0))
        | _field("energy", jnp.where(ground, board.energy, 0))
        | _field("data", known & board.data.flags())
        | _field("program_block", visible_program)
        | _field("question", question)
        | _field("block_siphoned", blocks & siphoned)
        | _field("pickup", board.pickups.flags())
        | _field("exit", board.exits.flags())
        | _field("center", board.centers.flags())
    )
    return jnp.stack([jnp.where(visible_program, program, 0), second_word])


def _cell_words(
    game: Game, ground: UInt32[Array, "words cells"], among_few: bool
) -> UInt32[Array, "words cells"]:
    """The two words of each cell, with entities."""
    table = game.entities
    enemies = table.is_enemy
    # Few positions have two enemies on a cell.
    crowded = total(enemies) != table.occupied().enemies.size()
    if among_few:  # If no game is crowded, the search ends at once.
        sorted_out = first_on_each(enemies & crowded, table.cell, table.order)
        first = jnp.where(crowded, sorted_out, enemies)
    else:
        operand = (enemies, table.cell, table.order)
        first = rarely(crowded, lambda x: first_on_each(*x), operand, enemies, short=True)
    # A cell shows at most one enemy and one transmission, so their bits fit in one number.
    shown = table.on_cells(_entity_bits(game, first)).astype(jnp.uint32)
    enemy = (shown & ((1 << _ENEMY_BITS) - 1)) << CELL_FIELDS["enemy_type"].shift
    transmission = _field("turns", shown >> _ENEMY_BITS)
    # Materialized, or each of the 42 channels would recompute the words.
    words = ground | jnp.where(np.arange(2)[:, None] == 0, enemy, transmission)
    return materialize(words, game.steps < 0)


def _entity_bits(game: Game, first: Bool[Array, "slots"]) -> UInt16[Array, "slots"]:
    """The visible facts of each entity as bits; ``first`` flags each cell's first enemy."""
    table = game.entities
    # A hidden cryptog still hides the enemies after it in list order.
    visible = first & visible_enemies(game)
    enemy = (
        (jnp.uint16(1) << table.type.astype(jnp.uint16))
        | (table.hp.astype(jnp.uint16) << 4)
        | (table.stunned.astype(jnp.uint16) << 6)
        | (table.from_siphon.astype(jnp.uint16) << 7)
    )
    transmission = jnp.minimum(table.turns, _MAX_TURNS).astype(jnp.uint16) << _ENEMY_BITS
    return jnp.where(visible, enemy, jnp.where(table.is_transmission, transmission, 0))


def _field(name: str, value: Array) -> UInt32[Array, " cells"]:
    """A field's value, shifted to its place in its word."""
    return value.astype(jnp.uint32) << CELL_FIELDS[name].shift
