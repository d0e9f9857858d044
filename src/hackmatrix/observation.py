"""What the player sees: 1,545 numbers, written in one pass.

First everything visible about a cell is packed into two words of bits; then each of the cell's 42
channels is one field of those words, scaled. The words are also the observation's compact form.
"""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt32

from hackmatrix.batching import computed_once, side_by_side, total
from hackmatrix.entities import CRYPTOG, NUM_TYPES, first_on_each
from hackmatrix.game import MAX_HP, NUM_STAGES, Game
from hackmatrix.planes import NUM_CELLS, SIZE, column, row
from hackmatrix.programs import NUM_PROGRAMS, owned_flags
from ppo_mask.env import rarely


class PlayerNumber(NamedTuple):
    """One of the player's numbers as an observation has it: ``(value - least) / span``.

    Attributes:
        name: of the value.
        least: what is 0.
        span: how much more is 1.
        cut: whether all that is more is 1, too.
    """

    name: str
    least: int = 0
    span: int = 1
    cut: bool = False

    def of(self, value: Any) -> Any:
        """The number for a value."""
        number = (value - self.least) / self.span
        return jnp.minimum(number, 1) if self.cut else number

    def formula(self) -> str:
        """The same as text."""
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
    PlayerNumber("data_siphons", span=10),
    PlayerNumber("attack", least=1, span=2),
    PlayerNumber("show"),
    PlayerNumber("calm"),
)
"""In the order of an observation."""

PLAYER_FEATURES = len(PLAYER_NUMBERS)
CHANNELS = 42
OBSERVATION_SIZE = PLAYER_FEATURES + NUM_PROGRAMS + NUM_CELLS * CHANNELS

_NEVER_LIMITED = ("data_siphons", "attack")
_ENEMY_BITS = 8  # type, hp, stunned and from_siphon, next to each other in a cell's first word
_MAX_TURNS = 4  # a transmission's turns left are seen up to here

# (bits, scale) of each field of a cell, in the order in which they are packed: first word, then the
# second. A field of several bits is one channel; a field with copies is one channel for each bit.
_FIELDS = {
    "program": (0, 0, NUM_PROGRAMS),
    "enemy_type": (0, 23, NUM_TYPES),
    "enemy_hp": (0, 27, 1),
    "stunned": (0, 29, 1),
    "from_siphon": (0, 30, 1),
    "points": (1, 0, 1),
    "spawn_count": (1, 4, 1),
    "turns": (1, 8, 1),
    "credits": (1, 11, 1),
    "energy": (1, 13, 1),
    "data": (1, 15, 1),
    "program_block": (1, 16, 1),
    "question": (1, 17, 1),
    "block_siphoned": (1, 18, 1),
    "pickup": (1, 19, 1),
    "exit": (1, 20, 1),
    "center": (1, 21, 1),
}
_WIDTH = {"enemy_hp": 2, "points": 4, "spawn_count": 4, "turns": 3, "credits": 2, "energy": 2}
# By which a field is divided, where that is not 1.
LARGEST = {"enemy_hp": 3, "points": 9, "spawn_count": 9, "turns": 4, "credits": 3, "energy": 3}
# In the order of their channels.
CELL_FIELDS = (
    "enemy_type",
    "enemy_hp",
    "stunned",
    "from_siphon",
    "data",
    "program_block",
    "question",
    "points",
    "block_siphoned",
    "program",
    "spawn_count",
    "turns",
    "credits",
    "energy",
    "pickup",
    "exit",
    "center",
)


def _channel_table() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For each channel: whether it is in the second word, its bits there, and their scale."""
    rows: list[tuple[bool, int, float]] = []
    for name in CELL_FIELDS:
        word, shift, copies = _FIELDS[name]
        mask = (1 << _WIDTH.get(name, 1)) - 1
        for copy in range(shift, shift + copies):
            rows.append((word == 1, mask << copy, 1 / (LARGEST.get(name, 1) << copy)))
    second, bits, scale = zip(*rows, strict=True)
    return np.array(second), np.array(bits, np.uint32), np.array(scale, np.float32)


def bounds() -> tuple[Float[np.ndarray, "observation"], Float[np.ndarray, "observation"]]:
    """The least and the greatest that each number of an observation can be.

    All are from 0 to 1, but for data siphons and attack, which a game never limits: of these a
    state holds 16 bits.
    """
    low = np.zeros(OBSERVATION_SIZE, np.float32)
    high = np.ones(OBSERVATION_SIZE, np.float32)
    for place, number in enumerate(PLAYER_NUMBERS):
        if number.name in _NEVER_LIMITED:
            high[place] = number.of((1 << 16) - 1)
    return low, high


def channels(name: str) -> slice:
    """The channels of a cell that a field takes."""
    start = 0
    for other in CELL_FIELDS[: CELL_FIELDS.index(name)]:
        start += _FIELDS[other][2]
    return slice(start, start + _FIELDS[name][2])


class CompactObservation(eqx.Module):
    """An observation in a tenth of its size; :func:`expand` gives it back exactly.

    Attributes:
        player: the ten features of the player.
        owned: the programs owned, one bit each.
        cells: two words of bits a cell.
    """

    player: Float[Array, "features"]
    owned: UInt32[Array, ""]
    cells: UInt32[Array, "cells words"]


@jax.jit
def observe(game: Game) -> Float[Array, "observation"]:
    """The flat observation: player, programs, grid."""
    return expand(compact(game))


def compact(game: Game) -> CompactObservation:
    """What the player sees, in compact form."""
    return CompactObservation(_player_features(game), game.owned, _cell_words(game))


def expand(seen: CompactObservation) -> Float[Array, "observation"]:
    """The flat observation of a compact one."""
    second, bits, scale = _channel_table()
    words = jnp.where(second, seen.cells[:, 1:2], seen.cells[:, 0:1])
    grid = (words & bits).astype(jnp.int32).astype(jnp.float32) * scale
    owned = owned_flags(seen.owned)
    # Player and programs as a row of the grid, padded in front: joining whole rows and cutting the
    # padding off is much cheaper on a CPU than joining vectors of odd lengths.
    padding = jnp.zeros(CHANNELS - PLAYER_FEATURES - NUM_PROGRAMS)
    first_row = jnp.concatenate([padding, seen.player, owned.astype(jnp.float32)])
    rows = jnp.concatenate([first_row[None], grid])
    return computed_once(rows, jnp.isnan(seen.player[0])).reshape(-1)[padding.size :]


def _player_features(game: Game) -> Float[Array, "features"]:
    player = game.player
    values = (
        player.row,
        player.col,
        player.hp,
        player.credits,
        player.energy,
        game.stage,
        player.data_siphons,
        player.attack,
        game.show,
        game.calm,
    )
    numbers = [number.of(x) for number, x in zip(PLAYER_NUMBERS, values, strict=True)]
    return side_by_side([x.astype(jnp.float32) for x in numbers])


def visible_enemies(game: Game) -> Bool[Array, "slots"]:
    """The enemies that the player sees: cryptogs only in its own lines, or with SHOW on."""
    table, player = game.entities, game.player
    lines = row(player.row) | column(player.col)
    return table.is_enemy & ((table.type != CRYPTOG) | game.show | lines.has(table.cell))


def _cell_words(game: Game) -> UInt32[Array, "cells words"]:
    table = game.entities
    enemies, cells = table.is_enemy, table.occupied().enemies
    # Few positions have two enemies on a cell.
    crowded = total(enemies) != cells.size()
    operand = (enemies, table.cell, table.order)
    first = rarely(crowded, lambda x: first_on_each(*x), operand, enemies)
    # In memory, or the compiler would compute the words anew for each of the 42 channels.
    return computed_once(_words(game, first), game.steps < 0)


def _words(game: Game, first: Bool[Array, "slots"]) -> UInt32[Array, "cells words"]:
    """The words of all cells; ``first`` are the enemies that are first in list order on theirs."""
    table, board = game.entities, game.board
    # A hidden cryptog still hides the enemies that come after it on its cell.
    seen = first & visible_enemies(game)
    blocks, question = board.blocks.flags(), board.question.flags()
    siphoned = board.siphoned.flags()
    known = blocks & ~question
    ground = ~blocks | siphoned

    def field(name: str, value: Array) -> UInt32[Array, " cells"]:
        return value.astype(jnp.uint32) << _FIELDS[name][1]

    enemy_bits = (
        (jnp.uint32(1) << table.type.astype(jnp.uint32))
        | (table.hp.astype(jnp.uint32) << 4)
        | (table.stunned.astype(jnp.uint32) << 6)
        | (table.from_siphon.astype(jnp.uint32) << 7)
    )
    turns = jnp.minimum(table.turns, _MAX_TURNS).astype(jnp.uint32) << _ENEMY_BITS
    entity_bits = jnp.where(seen, enemy_bits, jnp.where(table.is_transmission, turns, 0))
    # At most one enemy and one transmission a cell: their bits join to one number a cell.
    shown = table.planes(entity_bits, _ENEMY_BITS + _WIDTH["turns"]).flags()
    weight = np.uint32(1) << np.arange(shown.shape[0], dtype=np.uint32)[:, None]
    shown = jnp.sum(jnp.where(shown, weight, 0), axis=0, dtype=jnp.uint32)
    enemy_word = (shown % (1 << _ENEMY_BITS)) << _FIELDS["enemy_type"][1]
    program = jnp.uint32(1) << jnp.maximum(board.program, 0).astype(jnp.uint32)
    visible_program = known & board.program_blocks.flags()
    first_word = jnp.where(visible_program, program, 0) | enemy_word
    second_word = (
        field("points", jnp.where(known, board.points, 0))
        | field("spawn_count", jnp.where(known, board.spawn_count, 0))
        | field("turns", shown >> _ENEMY_BITS)
        | field("credits", jnp.where(ground, board.credits, 0))
        | field("energy", jnp.where(ground, board.energy, 0))
        | field("data", known & board.data.flags())
        | field("program_block", visible_program)
        | field("question", question)
        | field("block_siphoned", blocks & siphoned)
        | field("pickup", board.pickups.flags())
        | field("exit", board.exits.flags())
        | field("center", board.centers.flags())
    )
    return jnp.stack([first_word, second_word], axis=1)
