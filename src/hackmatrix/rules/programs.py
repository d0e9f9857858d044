"""The 23 programs: one row for each program, with everything that the rules need to know.

A row's functions return arrays over all entities or cells. :mod:`hackmatrix.rules.effects` folds
the rows into one computation, in which each game runs its own program.
"""

from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias, TypeVar

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, UInt32

from hackmatrix.rules import bits, paths
from hackmatrix.rules.batching import anywhere, join, materialize, smallest
from hackmatrix.rules.draws import Draws, Use
from hackmatrix.rules.entities import (
    DAEMON,
    FREE,
    MAX_ENTITIES,
    NUM_TYPES,
    VIRUS,
    Occupied,
    full_hp,
    slot_set,
)
from hackmatrix.rules.game import MAX_HP, NUM_STAGES, Game
from hackmatrix.rules.planes import Plane, column, row, single

_Value = TypeVar("_Value")
Rule: TypeAlias = Callable[["Situation"], _Value]
Whom: TypeAlias = Bool[Array, " slots"] | Plane
"""The entities of these slots, or those on these cells."""


class Card(NamedTuple):
    """All facts about a program.

    Attributes:
        name: the name in the original game.
        credits: the price in credits.
        energy: the price in energy.
        spawn_count: transmissions that siphoning the program's block brings.
        text: the effect in words.
        short: the effect in at most 24 characters, for the screen.
        useful: whether the program would have some effect; otherwise it cannot be run. None for
            always.
        hits: enemies that lose ``damage`` hp; those that survive are stunned.
        damage: hp that a hit takes; None for the player's attack.
        destroys: enemies and transmissions that are removed, whatever their hp.
        pushes: 1 if enemies move a cell away from the player, -1 if they come a cell nearer.
        entities: new values of fields of :class:`hackmatrix.rules.entities.Entities`.
        clears: cells whose blocks are removed.
        reduces: cells whose blocks bring one transmission less.
        adds: amounts to add to numbers of the player and the game.
        sets: new values of numbers of the player and the game.
    """

    name: str
    credits: int
    energy: int
    spawn_count: int
    text: str
    short: str
    useful: Rule[Bool[Array, ""]] | None = None
    hits: Rule[Whom] | None = None
    damage: int | None = None
    destroys: Rule[Whom] | None = None
    pushes: int = 0
    entities: Rule[Mapping[str, Array]] | None = None
    clears: Rule[Plane] | None = None
    reduces: Rule[Plane] | None = None
    adds: Rule[Mapping[str, Any]] | None = None
    sets: Rule[Mapping[str, Any]] | None = None

    @property
    def price(self) -> str:
        """Credits and energy as text."""
        return amounts(self.credits, self.energy)


class Program(IntEnum):
    """A program's number, with its row as ``card``; the number of its action is 5 higher."""

    card: Card

    def __new__(cls, *card: Any) -> "Program":
        """Makes the next program; ``card`` holds the fields of its :class:`Card`."""
        program = int.__new__(cls, len(cls.__members__))
        program._value_ = int(program)
        program.card = Card(*card)
        return program

    # fmt: off
    # Name, credits, energy, spawn count; text, in full and in short; when it is useful; effects.
    PUSH = Card("PUSH", 0, 2, 4,
        "every enemy moves one cell away from you, over blocks too", "enemies: a cell away",
        useful=lambda now: now.enemies.any(),
        pushes=1)
    PULL = Card("PULL", 0, 2, 4,
        "every enemy moves one cell toward you", "enemies: a cell nearer",
        useful=lambda now: now.enemies.any(),
        pushes=-1)
    CRASH = Card("CRASH", 3, 2, 6,
        "clears the eight cells around you of blocks, enemies and transmissions",
        "clears 8 cells around",
        useful=lambda now: (now.around & now.occupied).any(),
        destroys=lambda now: now.around,
        clears=lambda now: now.around)
    WARP = Card("WARP", 2, 2, 5,
        "you jump onto a random enemy or transmission and destroy it", "jump onto one, kill it",
        useful=lambda now: now.enemies.any() | now.transmissions.any(),
        destroys=lambda now: now.of_kind_and_cell(now.drawn),
        sets=lambda now: {"cell": now.table.cell[now.drawn]})
    POLY = Card("POLY", 1, 1, 3,
        "every enemy becomes one of another type; damage stays", "enemies change type",
        useful=lambda now: now.enemies.any(),
        entities=lambda now: now.other_types())
    WAIT = Card("WAIT", 0, 1, 1,
        "ends the turn", "ends the turn")  # the environment ends the turn
    DEBUG = Card("DEBUG", 3, 0, 4,
        "hits every enemy on a block", "hits enemies on blocks",
        useful=lambda now: (now.enemies & now.board.blocks).any(),
        hits=lambda now: now.board.blocks)
    ROW = Card("ROW", 3, 1, 2,
        "hits every enemy in your row", "hits all in your row",
        useful=lambda now: (now.enemies & row(now.player.row)).any(),
        hits=lambda now: row(now.player.row))
    COL = Card("COL", 3, 1, 2,
        "hits every enemy in your column", "hits all in your column",
        useful=lambda now: (now.enemies & column(now.player.col)).any(),
        hits=lambda now: column(now.player.col))
    UNDO = Card("UNDO", 1, 0, 3,
        "takes back your actions since the last enemy turn; a second UNDO takes back that enemy "
        "turn, too", "takes the turn back",
        useful=lambda now: now.game.undo_length > 0)  # its effect is in `history`
    STEP = Card("STEP", 0, 3, 4,
        "the next enemy turn does not happen", "enemies miss a turn",
        sets=lambda now: {"step_pending": True})
    SIPH_PLUS = Card("SIPH+", 5, 0, 7,
        "a data siphon", "one more data siphon",
        adds=lambda now: {"data_siphons": 1})
    EXCH = Card("EXCH", 4, 0, 3,
        "4 energy", "4 energy",  # useful with 4 credits, which is the price
        adds=lambda now: {"energy": 4})
    SHOW = Card("SHOW", 2, 0, 2,
        "shows cryptogs, for this stage", "shows cryptogs",
        useful=lambda now: ~now.game.show,
        sets=lambda now: {"show": True})
    RESET = Card("RESET", 0, 4, 2,
        "3 hp", "back to 3 hp",
        useful=lambda now: now.player.hp < MAX_HP,
        sets=lambda now: {"hp": MAX_HP})
    CALM = Card("CALM", 2, 4, 6,
        "no scheduled transmissions in this stage", "ends the schedule",
        useful=lambda now: ~now.game.calm,
        sets=lambda now: {"calm": True})
    D_BOM = Card("D_BOM", 3, 0, 4,
        "destroys the nearest daemon, and hits enemies in the cells around it for 1",
        "kills the nearest daemon",
        useful=lambda now: now.lives(DAEMON),
        destroys=lambda now: now.nearest_daemon,
        hits=lambda now: now.table.cells_of(now.nearest_daemon).around(),
        damage=1)
    DELAY = Card("DELAY", 1, 2, 4,
        "every transmission comes 3 turns later", "all come 3 turns later",
        useful=lambda now: now.transmissions.any(),
        entities=lambda now: now.later(3))
    ANTI_V = Card("ANTI-V", 3, 0, 4,
        "hits every virus for 1", "hits viruses, for 1",
        useful=lambda now: now.lives(VIRUS),
        hits=lambda now: now.table.type == VIRUS,
        damage=1)
    SCORE = Card("SCORE", 0, 5, 5,
        "score: 8 less the stage you are in", "points: 8 - stage",
        useful=lambda now: now.game.stage < NUM_STAGES,
        adds=lambda now: {"score": NUM_STAGES - now.game.stage})
    REDUC = Card("REDUC", 2, 1, 3,
        "every block that is not siphoned brings one transmission less", "blocks bring 1 less",
        useful=lambda now: now.any_block_brings_some,
        reduces=lambda now: now.board.blocks & ~now.board.siphoned)
    ATK_PLUS = Card("ATK+", 4, 4, 8,
        "attack 1 higher, for the rest of the game; twice a stage at most", "attack 1 higher",
        useful=lambda now: now.game.atk_uses < 2,
        adds=lambda now: {"attack": 1, "atk_uses": 1})
    HACK = Card("HACK", 2, 2, 4,
        "hits every enemy on a siphoned cell", "hits on siphoned cells",
        useful=lambda now: now.board.siphoned.any(),
        hits=lambda now: now.board.siphoned)
    # fmt: on


CARDS = tuple(program.card for program in Program)
NUM_PROGRAMS = len(CARDS)


def amounts(credits: int, energy: int) -> str:
    """Credits and energy as text, such as ``3c 2e``; an empty string if both are 0."""
    return " ".join(f"{n}{letter}" for n, letter in ((credits, "c"), (energy, "e")) if n)


def owned_flags(owned: UInt32[Array, ""]) -> Bool[Array, "programs"]:
    """Which programs are owned; ``owned`` has one bit for each program."""
    return bits.flags_of(owned, NUM_PROGRAMS)


class Situation:
    """The facts about a position that the programs' rows read, each computed once for all rows.

    Attributes:
        game: the position; ``player``, ``board`` and ``table`` (the entities) are its parts.
    """

    def __init__(self, game: Game, occupied: Occupied | None = None, draws: Draws | None = None):
        """``Card.useful`` alone reads ``occupied``, and the effects alone read ``draws``."""
        self.game, self.player, self.board = game, game.player, game.board
        self.table, self._occupied, self._draws = game.entities, occupied, draws

    @property
    def enemies(self) -> Plane:
        """The cells with an enemy."""
        return self._given(self._occupied).enemies

    @property
    def transmissions(self) -> Plane:
        """The cells with a transmission."""
        return self._given(self._occupied).transmissions

    @property
    def occupied(self) -> Plane:
        """The cells with a block, an enemy or a transmission."""
        return self.board.blocks | self.enemies | self.transmissions

    @cached_property
    def around(self) -> Plane:
        """The 8 cells around the player."""
        return single(self.player.cell).around()

    def lives(self, type: int) -> Bool[Array, ""]:
        """Whether an enemy of a type is on the board."""
        return self._found[type]

    @property
    def any_block_brings_some(self) -> Bool[Array, ""]:
        """Whether siphoning a block would bring a transmission."""
        return self._found[NUM_TYPES]

    @cached_property
    def _found(self) -> Bool[Array, " found"]:
        blocks = (~self.board.siphoned & self.board.blocks).flags() & (self.board.spawn_count > 0)
        type = jnp.uint16(1) << self.table.type.astype(jnp.uint16)
        types = join(jnp.where(self.table.is_enemy, type, 0))
        found = types | (anywhere(blocks).astype(jnp.uint16) << NUM_TYPES)
        # Materialized, as XLA computes operations fused with a reduction one game at a time.
        return bits.flags_of(materialize(found, self.game.steps < 0), NUM_TYPES + 1)

    @cached_property
    def nearest_daemon(self) -> Bool[Array, " slots"]:
        """The daemon nearest to the player; of equally near daemons, the first in list order."""
        daemons = self.table.is_enemy & (self.table.type == DAEMON)
        steps = paths.manhattan(self.table.cell.astype(jnp.int32), self.player.cell)
        distance = jnp.where(daemons, steps, 99)
        return self.table.first(daemons & (distance == smallest(distance)))

    @cached_property
    def drawn(self) -> Int[Array, ""]:
        """A uniformly sampled slot with an enemy or transmission; any slot if there is none."""
        slots = slot_set(self.table.kind != FREE)
        return slots.nth(self._given(self._draws).below(slots.size(), Use.WARP))

    def of_kind_and_cell(self, slot: Int[Array, ""]) -> Bool[Array, " slots"]:
        """The entities of the same kind and on the same cell as the entity in ``slot``."""
        kind, cell = self.table.kind, self.table.cell
        return (kind == kind[slot]) & (cell == cell[slot])

    def later(self, turns: int) -> dict[str, Array]:
        """Delays all transmissions; the result saturates at the largest 16-bit integer."""
        most = np.iinfo(np.int16).max - turns
        return {"turns": jnp.minimum(self.table.turns, most) + turns}

    def other_types(self) -> dict[str, Array]:
        """Gives every enemy another type; damage stays, and hp above the old full hp is lost."""
        table = self.table
        shift = self._given(self._draws).below(NUM_TYPES - 1, Use.POLY, np.arange(MAX_ENTITIES))
        type = (table.type + 1 + shift.astype(jnp.int8)) & (NUM_TYPES - 1)
        damage = jnp.maximum(full_hp(table.type) - table.hp, 0)
        return {
            "type": jnp.where(table.is_enemy, type, table.type),
            "hp": jnp.where(table.is_enemy, full_hp(type) - damage, table.hp),
        }

    @staticmethod
    def _given(what: _Value | None) -> _Value:
        assert what is not None, "an effect used `occupied`, or `useful` used `draws`"
        return what
