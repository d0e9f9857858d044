"""A scene as text that fits a terminal of 80 columns and 24 rows.

Row 5 is at the top, as on the grid. A cell has two lines: first who is on the cell, then what it
contains.

Who:  ``@`` the player, ``virus2`` an enemy and its hp (``!`` stunned, ``z`` disabled, ``s`` from a
siphon, ``t`` from the schedule, ``+1`` one more), ``>3`` a transmission and its turns left
(``>3daemon`` if the type is known).
What: ``EXIT``, ``siphon`` (a pickup), ``[5] x5`` a data block of 5 points that brings 5
transmissions, ``[PUSH] x4`` a program block, ``[?]`` a hidden block, ``2c`` credits, ``1e`` energy,
``-`` siphoned, ``*`` siphoned from here.
"""

import os
import sys

from hackmatrix.render.scene import Block, Cell, Enemy, Scene, Transmission, scene
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS, amounts
from hackmatrix.rules.state import State, as_text

CELL_WIDTH = 11

_PROGRAMS_A_LINE = 4
_VALUES_A_LINE = 6
_COLORS = {
    "virus": 31,
    "daemon": 91,
    "glitch": 35,
    "crypto": 36,
    "@": 92,
    ">": 33,
    "[": 94,
    "EXIT": 92,
    "siphon": 96,
}


def text(state: State, *, color: bool = False, reveal: bool = False) -> str:
    """The board, the player's values and programs.

    Args:
        state: one position, not a batch.
        color: whether to use ANSI colors.
        reveal: whether to show what the player cannot see, as in
            :func:`hackmatrix.render.scene.scene`.

    Raises:
        ValueError: the state has a leading axis.
    """
    shown = scene(state, reveal=reveal)
    return "\n".join([*values(shown), *board(shown, color=color), *_programs(shown)])


as_text.register(State, text)


def colored() -> bool:
    """Whether to use colors: on a terminal, unless NO_COLOR is set (https://no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def values(scene: Scene) -> list[str]:
    """The values of the player and the stage, in two lines."""
    named = [f"{name} {value}" for name, value in scene.values()]
    first, second = named[:_VALUES_A_LINE], named[_VALUES_A_LINE:]
    flags = scene.flags()
    switches = [flag for flag in flags if " " not in flag]
    first += [" ".join(switches)] if switches else []
    return ["  ".join(first), "  ".join([*second, *(flag for flag in flags if " " in flag)])]


def board(scene: Scene, *, color: bool = False) -> list[str]:
    """The grid, in 15 lines of 75 columns."""
    rule = "  +" + ("-" * CELL_WIDTH + "+") * SIZE
    lines = [rule]
    for row in reversed(range(SIZE)):
        cells = scene.cells[SIZE * row : SIZE * (row + 1)]
        for part, label in ((_who, str(row)), (_what, " ")):
            shown = (_painted(part(cell), color) for cell in cells)
            lines.append(f"{label} |" + "|".join(shown) + "|")
    columns = " ".join(str(col).center(CELL_WIDTH) for col in range(SIZE)).rstrip()
    return [*lines, rule, "   " + columns]


def _who(cell: Cell) -> str:
    """The player, enemies and transmissions on a cell."""
    parts = ["@"] * cell.player
    alone = not cell.enemies and not cell.player
    coming = " ".join(_coming(each, alone) for each in cell.transmissions)
    room = CELL_WIDTH - len("".join(parts)) - len(coming) - bool(coming) - bool(parts)
    if cell.enemies:
        parts.append(_crowd(cell, room))
    return " ".join([*parts, coming] if coming else parts)


def _crowd(cell: Cell, room: int) -> str:
    """The enemies of a cell; without room for all, the first and how many more there are."""
    first, *others = cell.enemies
    all_others = "".join(_enemy(enemy, 2) for enemy in others)
    all_others += f"+{cell.more}" if cell.more else ""
    number = f"+{len(others) + cell.more}" if others or cell.more else ""
    shown = ""
    for rest in (all_others, number):
        for length in range(6, 1, -1):
            shown = _enemy(first, length) + rest
            if len(shown) <= room:
                return shown
    return shown


def _enemy(enemy: Enemy, length: int) -> str:
    return f"{enemy.type[:length]}{enemy.hp}{enemy.marks}"


def _coming(each: Transmission, alone: bool) -> str:
    name = (each.type or "")[: 6 if alone else 1]
    return f">{each.turns}{name}{each.marks}"


def _what(cell: Cell) -> str:
    """The kind of a cell, and the resources on it."""
    name, parts = "EXIT" * cell.exit + "siphon" * cell.pickup, list[str]()
    if cell.block:
        name, parts = _block(cell.block)
    parts += [amounts(cell.credits, cell.energy), "-" * cell.siphoned + "*" * cell.center]
    rest = " ".join(filter(None, parts))
    if len(name) + len(rest) >= CELL_WIDTH:
        rest = rest.replace(" ", "")
        if len(name) + len(rest) > CELL_WIDTH:
            # The first letters are enough to recognize a program.
            name = name[: CELL_WIDTH - len(rest) - 1] + "]"
    return f"{name} {rest}".strip() if len(name) + len(rest) < CELL_WIDTH else name + rest


def _block(block: Block) -> tuple[str, list[str]]:
    if block.content == "unknown":
        return "[?]", []
    spawns = f"x{block.spawn_count}" if block.spawn_count else ""
    return f"[{block.program or block.points}]", ["?" * block.question, spawns]


def _programs(scene: Scene) -> list[str]:
    """The programs owned, with their prices."""
    cards = [CARDS[number] for number in scene.programs]
    if not cards:
        return ["no programs"]
    entries = [f"{card.name} {card.price}".ljust(18) for card in cards]
    lines = range(0, len(entries), _PROGRAMS_A_LINE)
    return ["".join(entries[n : n + _PROGRAMS_A_LINE]).rstrip() for n in lines]


def _painted(cell: str, color: bool) -> str:
    shown = cell[:CELL_WIDTH].ljust(CELL_WIDTH)
    if not color or not cell:
        return shown
    code = next((code for start, code in _COLORS.items() if cell.startswith(start)), None)
    return shown if code is None else f"\x1b[{code}m{shown}\x1b[0m"
