"""A position as text that fits a terminal of 80 columns and 24 rows.

Row 5 is at the top, as on the grid. A cell has two lines: who is on it, and what it is. What the
player cannot see is not shown, unless it is asked for.

Who:  ``@`` the player, ``virus2`` an enemy and its hp (``!`` stunned, ``z`` disabled, ``+1`` one
more), ``>3`` a transmission and its turns left (``>3daemon`` where its type is known).
What: ``EXIT``, ``siphon`` (a pickup), ``[5] x5`` a data block of 5 points that spawns 5,
``[PUSH] x4`` a program block, ``[?]`` a hidden one, ``2c`` credits, ``1e`` energy, ``-`` siphoned,
``*`` siphoned from here.
"""

from typing import Any

from hackmatrix import positions
from hackmatrix.entities import CRYPTOG
from hackmatrix.planes import SIZE
from hackmatrix.programs import CARDS
from hackmatrix.state import State

TYPES = ("virus", "daemon", "glitch", "cryptog")

_WIDTH = 11
_PROGRAMS_A_LINE = 4
_COLORS = {"virus": 31, "daemon": 91, "glitch": 35, "crypto": 36, "@": 92, ">": 33, "[": 34}

Position = dict[str, Any]
Cell = tuple[int, int]


def text(state: State, *, color: bool = False, reveal: bool = False) -> str:
    """The board, the player's values and programs.

    Args:
        state: one position, not a batch.
        color: with ANSI colours.
        reveal: shows what the player cannot see: cryptogs, question blocks, types of transmissions.

    Raises:
        ValueError: the state has a leading axis.
    """
    batch = state.kept.order.shape[:-1]
    if batch:
        raise ValueError(f"text shows one state, not a batch of shape {batch}")
    position = positions.dump(state)
    rule = "  +" + ("-" * _WIDTH + "+") * SIZE
    lines = [*_header(position), rule]
    who, what = _who(position, reveal), _what(position, reveal)
    for row in reversed(range(SIZE)):
        for part, label in ((who, str(row)), (what, " ")):
            cells = (part.get((row, col), "") for col in range(SIZE))
            lines.append(f"{label} |" + "|".join(_painted(cell, color) for cell in cells) + "|")
    lines.append(rule)
    lines.append("   " + " ".join(str(col).center(_WIDTH) for col in range(SIZE)).rstrip())
    return "\n".join([*lines, *_programs(position)])


def _header(position: Position) -> list[str]:
    hp, credits, energy, data_siphons, score, attack = position["player"][2:]
    flags = [name for name in ("show", "calm", "step") if position[name]]
    pending, uses = position["pending"], position["atk_uses"]
    first = [
        f"hp {hp}/3",
        f"credits {credits}",
        f"energy {energy}",
        f"siphons {data_siphons}",
        f"attack {attack}",
        f"score {score}",
        " ".join(flags),
    ]
    second = [
        f"stage {position['stage']}/8",
        f"turn {position['turn']}",
        f"next spawn at turn {position['next_task']} (every {position['interval']})",
        f"{pending} pending" if pending else "",
        f"ATK+ used {uses}" if uses else "",
    ]
    return ["  ".join(filter(None, parts)) for parts in (first, second)]


def _who(position: Position, reveal: bool) -> dict[Cell, str]:
    """The player, enemies and transmissions on each cell."""
    row, col = position["player"][:2]
    knows_all = reveal or bool(position["show"])
    marks: dict[Cell, list[str]] = {}
    hidden: set[Cell] = set()
    for type, r, c, hp, disabled, stunned, *_ in position["enemies"]:
        cell = (r, c)
        seen = knows_all or type != CRYPTOG or r == row or c == col
        if not reveal and (not seen or cell in hidden):
            # Who stands first on a cell hides the others there, seen or not.
            hidden |= set() if cell in marks else {cell}
            continue
        marks.setdefault(cell, []).append(
            f"{TYPES[type][:6]}{hp}" + "!" * bool(stunned) + "z" * bool(disabled)
        )
    found = {cell: _with_more(names) for cell, names in marks.items()}
    for r, c, turns, type, *_ in position["transmissions"]:
        mark = f">{turns}"
        if (r, c) in found:
            found[r, c] += f" {mark}" + TYPES[type][:1] * knows_all
        else:
            found[r, c] = mark + TYPES[type] * knows_all
    found[row, col] = f"@ {found.get((row, col), '')}".strip()
    return found


def _with_more(names: list[str]) -> str:
    return names[0] + (f"+{len(names) - 1}" if len(names) > 1 else "")


def _what(position: Position, reveal: bool) -> dict[Cell, str]:
    """What each cell is, and what lies there."""
    return {(cell[0], cell[1]): _content(cell, reveal) for cell in position["cells"]}


def _content(cell: list[int], reveal: bool) -> str:
    _, _, kind, points, program, spawn_count, credits, energy, siphoned, center = cell
    question = kind in (positions.QUESTION_DATA, positions.QUESTION_PROGRAM)
    is_block = kind in (positions.DATA, positions.PROGRAM) or question
    name = {positions.EXIT: "EXIT", positions.PICKUP: "siphon"}.get(kind, "")
    parts: list[str] = []
    if question and not reveal:
        name = "[?]"
    elif is_block:
        name = f"[{CARDS[program].name if program >= 0 else points}]"
        parts = ["?" * question, f"x{spawn_count}" if spawn_count else ""]
    if siphoned or reveal or not is_block:
        parts += [_price(credits, energy)]
    parts += ["-" * bool(siphoned) + "*" * bool(center)]
    rest = " ".join(filter(None, parts))
    if len(name) + len(rest) >= _WIDTH:
        rest = rest.replace(" ", "")
        # A program's name can be told from its first letters.
        name = name[: _WIDTH - len(rest) - 1] + "]" if len(name) + len(rest) > _WIDTH else name
    return f"{name} {rest}".strip() if len(name) + len(rest) < _WIDTH else name + rest


def _programs(position: Position) -> list[str]:
    """The programs owned, with their prices."""
    cards = [CARDS[number] for number in position["owned"]]
    if not cards:
        return ["no programs"]
    entries = [f"{card.name} {_price(card.credits, card.energy)}".ljust(18) for card in cards]
    lines = range(0, len(entries), _PROGRAMS_A_LINE)
    return ["".join(entries[n : n + _PROGRAMS_A_LINE]).rstrip() for n in lines]


def _price(credits: int, energy: int) -> str:
    return " ".join(f"{n}{letter}" for n, letter in ((credits, "c"), (energy, "e")) if n)


def _painted(cell: str, color: bool) -> str:
    shown = cell[:_WIDTH].ljust(_WIDTH)
    if not color or not cell:
        return shown
    code = next((code for start, code in _COLORS.items() if cell.startswith(start)), None)
    return shown if code is None else f"\x1b[{code}m{shown}\x1b[0m"
