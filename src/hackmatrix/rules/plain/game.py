"""A position in plain values, and places on the board."""

from collections import deque
from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cache
from random import Random
from typing import Any, NamedTuple, Protocol, TypeVar

from hackmatrix.rules.draws import Use

T = TypeVar("T")
Cell = tuple[int, int]  # row and column; row 0 is at the bottom
Position = dict[str, Any]  # as in :mod:`hackmatrix.positions`

DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1))  # up, down, left, right, tried in this order
BOARD: tuple[Cell, ...] = tuple((row, col) for row in range(6) for col in range(6))
CORNERS: tuple[Cell, ...] = ((0, 0), (0, 5), (5, 0), (5, 5))
EMPTY, DATA, PROGRAM, QUESTION_DATA, QUESTION_PROGRAM, PICKUP, EXIT = range(7)
VIRUS, DAEMON, GLITCH, CRYPTOG = TYPES = range(4)
FULL_HP = (2, 3, 2, 2)
LAST_STAGE = 8


class Chance(Protocol):
    """Chooses uniformly; ``number`` distinguishes choices with the same use in one step."""

    def __call__(self, options: Sequence[T], use: Use, number: int = 0) -> T:
        """Chooses one of the options."""
        ...


class Dice:
    """A :class:`Chance` that uses Python's random number generator."""

    def __init__(self, seed: int):
        self._random = Random(seed)

    def __call__(self, options: Sequence[T], use: Use, number: int = 0) -> T:
        """Chooses one of the options."""
        del use, number
        return self._random.choice(options)


class Content(NamedTuple):
    """What is on a cell, without enemies and transmissions."""

    kind: int = EMPTY
    points: int = 0
    program: int = -1
    spawn_count: int = 0
    credits: int = 0
    energy: int = 0
    siphoned: int = 0
    center: int = 0

    @property
    def holds_data(self) -> bool:
        """Whether the cell has a data block, hidden or not."""
        return self.kind in (DATA, QUESTION_DATA)

    @property
    def holds_program(self) -> bool:
        """Whether the cell has a program block, hidden or not."""
        return self.kind in (PROGRAM, QUESTION_PROGRAM)

    @property
    def is_question(self) -> bool:
        """Whether the cell has a block whose content is hidden."""
        return self.kind in (QUESTION_DATA, QUESTION_PROGRAM)

    @property
    def is_block(self) -> bool:
        """Whether the cell has a block of any sort."""
        return DATA <= self.kind <= QUESTION_PROGRAM


@dataclass(eq=False, slots=True)
class Entity:
    """An enemy, or a transmission, which becomes an enemy after some turns."""

    type: int
    cell: Cell
    hp: int = 0
    disabled: int = 0
    stunned: int = 0
    turns: int = 0
    from_siphon: int = 0
    from_task: int = 0


@dataclass(slots=True)
class Player:
    """The player."""

    cell: Cell
    hp: int = 3
    credits: int = 0
    energy: int = 0
    data_siphons: int = 0
    score: int = 0
    attack: int = 1


@dataclass(slots=True)
class Game:
    """One position, and the earlier positions that UNDO can go back to.

    Enemies are listed by arrival, then by birth; transmissions by birth.
    """

    player: Player
    exit: Cell = (5, 5)
    cells: dict[Cell, Content] = field(default_factory=lambda: dict.fromkeys(BOARD, Content()))
    enemies: list[Entity] = field(default_factory=list[Entity])
    transmissions: list[Entity] = field(default_factory=list[Entity])
    owned: set[int] = field(default_factory=set[int])
    stage: int = 1
    turn: int = 0
    show: int = 0
    calm: int = 0
    step: int = 0
    atk_uses: int = 0
    interval: int = 12
    next_task: int = 12
    pending: int = 0
    history: list["Game"] = field(default_factory=list["Game"])
    undo_depth: int = 8

    def blocks(self) -> set[Cell]:
        """The cells with a block."""
        return {cell for cell, content in self.cells.items() if content.is_block}

    def siphoned(self) -> set[Cell]:
        """The cells that have been siphoned."""
        return {cell for cell, content in self.cells.items() if content.siphoned}

    def change(self, cell: Cell, **values: int) -> None:
        """Changes what is on a cell."""
        self.cells[cell] = self.cells[cell]._replace(**values)

    def snapshot(self) -> "Game":
        """Copies the position without its history."""
        return replace(
            self,
            player=copy(self.player),
            cells=dict(self.cells),
            enemies=[copy(enemy) for enemy in self.enemies],
            transmissions=[copy(transmission) for transmission in self.transmissions],
            owned=set(self.owned),
            history=[],
        )


@dataclass(slots=True)
class Result:
    """The outcome of a step; after an invalid action, only ``invalid_action`` is set."""

    invalid_action: bool = False
    completed: bool = False  # the stage was completed
    won: bool = False
    died: bool = False
    kills: int = 0  # destroyed entities that are rewarded
    picked_up: bool = False
    walked: bool = False
    wasted_reset: bool = False
    lost_yield: int = 0  # how much more SIPHON would have brought from a better place
    reward: dict[str, float] = field(default_factory=dict[str, float])

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return self.won or self.died or self.invalid_action


# Places


@cache
def neighbors(cell: Cell) -> tuple[Cell, ...]:
    """The cells on the board next to a cell: up, down, left, right."""
    return tuple(n for dr, dc in DIRECTIONS if (n := (cell[0] + dr, cell[1] + dc)) in BOARD)


def around(cell: Cell) -> list[Cell]:
    """The cells around a cell, at most 8."""
    row, col = cell
    return [c for c in BOARD if c != cell and abs(c[0] - row) <= 1 and abs(c[1] - col) <= 1]


def ray(cell: Cell, direction: Cell) -> list[Cell]:
    """The cells beyond a cell in a direction, up to the edge."""
    steps = [(cell[0] + n * direction[0], cell[1] + n * direction[1]) for n in range(1, 6)]
    return [step for step in steps if step in BOARD]


def manhattan(a: Cell, b: Cell) -> int:
    """The steps between two cells on an empty board."""
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def distances(goal: Cell, free: set[Cell]) -> dict[Cell, int]:
    """The steps to the goal from each cell that reaches it over free cells."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        cell = queue.popleft()
        for n in neighbors(cell):
            if n in free and n not in found:
                found[n] = found[cell] + 1
                queue.append(n)
    return found


def cells_of(entities: Iterable[Entity]) -> set[Cell]:
    """The cells of the entities."""
    return {entity.cell for entity in entities}


def on(entities: Iterable[Entity], cells: Iterable[Cell]) -> list[Entity]:
    """The entities on the cells."""
    cells = set(cells)
    return [entity for entity in entities if entity.cell in cells]


_NUMBERS = ("stage", "turn", "show", "calm", "step", "atk_uses", "interval", "next_task", "pending")


def load(position: Position) -> Game:
    """Makes a game from a position."""
    row, col, *numbers = position["player"]
    given = {(row, col): Content(*content) for row, col, *content in position["cells"]}
    return Game(
        Player((row, col), *numbers),
        exit=tuple(position["exit"]),
        cells=dict.fromkeys(BOARD, Content()) | given,
        enemies=[
            Entity(type, (row, col), hp, disabled, stunned, 0, *origin)
            for type, row, col, hp, disabled, stunned, *origin in position["enemies"]
        ],
        transmissions=[
            Entity(type, (row, col), 0, 0, 0, turns, *origin)
            for row, col, turns, type, *origin in position["transmissions"]
        ],
        owned=set(position["owned"]),
        **{name: position[name] for name in _NUMBERS},
    )


def dump(game: Game) -> Position:
    """Returns the position of a game."""
    player = game.player
    return {
        **{name: getattr(game, name) for name in _NUMBERS},
        "exit": list(game.exit),
        "player": [
            *(*player.cell, player.hp, player.credits, player.energy),
            *(player.data_siphons, player.score, player.attack),
        ],
        "owned": sorted(game.owned),
        "cells": [[*cell, *held] for cell, held in game.cells.items() if held != Content()],
        "enemies": [
            [e.type, *e.cell, e.hp, e.disabled, e.stunned, e.from_siphon, e.from_task]
            for e in game.enemies
        ],
        "transmissions": [
            [*t.cell, t.turns, t.type, t.from_siphon, t.from_task] for t in game.transmissions
        ],
    }
