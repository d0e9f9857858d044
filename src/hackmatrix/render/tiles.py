"""The drawing of a cell, a square of side 100.

Each type of enemy has a shape and a color of its own. The number on an enemy is its hp. The marks
beside an enemy are those of :mod:`hackmatrix.render.text`: ``!`` stunned, ``z`` disabled, ``s``
from a siphon, ``t`` from the schedule.
"""

import functools
import math

from hackmatrix.render.scene import Block, Cell, Enemy, Transmission, describe
from hackmatrix.render.shapes import Box, Disc, Group, Label, Length, Polygon, Shape

TILE = 100

INK = "#e8edf4"
DIM = "#8b98ab"
BACKGROUND = "#0b0f17"
FLOOR = "#161d2a"
SIPHONED = "#12302f"
CREDITS = "#f4c542"
ENERGY = "#4cc9f0"
SIPHON = "#5eead4"
EXIT = "#4ade80"
PLAYER = "#f8fafc"
COMING = "#fb923c"
COLORS = {"virus": "#ff5d5d", "daemon": "#ff9f43", "glitch": "#e879f9", "cryptog": "#60a5fa"}

_BLOCKS = {"data": ("#24407a", "#5b86dd"), "program": ("#4b2a6e", "#a472e0")}
_BLOCKS["unknown"] = ("#39424f", "#7c8897")
_DARK = "#10151f"
_PIP = 6.0


@functools.lru_cache(4096)
def tile(cell: Cell) -> Group:
    """The drawing of a cell."""
    crowd = [*[None] * cell.player, *cell.enemies, *cell.transmissions]
    shapes: list[Shape] = [Box(1.5, 1.5, 97, 97, SIPHONED if cell.siphoned else FLOOR, 8)]
    if cell.center:
        shapes.append(Disc(50, 50, 44, "", SIPHON, 2))
    if cell.block:
        shapes += _block(cell.block, cell.siphoned, 24 if crowd else 47)
    if cell.exit:
        shapes += [Box(8, 8, 84, 84, "#12351f", 10, EXIT, 4)]
        shapes += [Label(50, 22 if crowd else 50, "EXIT", 16 if crowd else 26, EXIT)]
    if cell.pickup:
        shapes += _pickup(50, 20 if crowd else 42, 11 if crowd else 20)
    shapes += _pips(cell.credits, cell.energy)
    low = bool(cell.block or cell.exit or cell.pickup)
    shapes += _crowd(crowd, 60 if low else 48, cell.more)
    return Group(0, 0, describe(cell), tuple(shapes))


def _block(block: Block, siphoned: bool, y: Length) -> list[Shape]:
    fill, stroke = _BLOCKS[block.content]
    fill = SIPHONED if siphoned else fill
    shapes: list[Shape] = [Box(6, 6, 88, 88, fill, 8, stroke, 3)]
    small = y < 40
    if block.content == "unknown":
        return [*shapes, Label(50, y, "?", 24 if small else 48, INK)]
    if block.content == "data":
        shapes.append(Label(50, y, str(block.points), 24 if small else 44, INK))
    else:
        size = 15 if small else 17 if len(block.program) > 5 else 21
        shapes.append(Label(42 if small else 50, y, block.program, size, INK))
    if block.question:
        shapes.append(Label(14, 18, "?", 16, DIM))
    if block.spawn_count:
        # Smaller beside an enemy or the player.
        place, size = ((82, 20), 14) if small else ((80, 83), 17)
        shapes.append(Label(*place, f"x{block.spawn_count}", size, COLORS["daemon"]))
    return shapes


def _pickup(x: Length, y: Length, r: Length) -> list[Shape]:
    corners = _ring(6, x, y, r, r)
    return [Polygon(corners, "#114b45", SIPHON, 3), Label(x, y, "S", 1.2 * r, SIPHON)]


def _pips(credits: int, energy: int) -> list[Shape]:
    """One pip for each credit and each unit of energy, upward from the bottom left corner."""
    shapes: list[Shape] = []
    for n in range(credits + energy):
        y = 85 - n * (2 * _PIP + 3)
        diamond = _ring(4, 14, y, _PIP + 1, _PIP + 1)
        shapes.append(Disc(14, y, _PIP, CREDITS) if n < credits else Polygon(diamond, ENERGY))
    return shapes


def _crowd(crowd: list[Enemy | Transmission | None], y: Length, more: int) -> list[Shape]:
    """Draws everybody on a cell, side by side; None stands for the player."""
    room = 3
    shapes: list[Shape] = []
    shown = crowd[:room] if len(crowd) > room else crowd
    r = {0: 0, 1: 25, 2: 20}.get(len(shown), 15)
    r = min(r, 22) if y > 50 else r
    for n, each in enumerate(shown):
        x = 50 + (n - (len(shown) - 1) / 2) * (2 * r + 6)
        if each is None:
            shapes += _player(x, y, r)
        elif isinstance(each, Enemy):
            shapes += _enemy(each, x, y, r)
        else:
            shapes += _transmission(each, x, y, r)
    if rest := len(crowd) - len(shown) + more:
        shapes.append(Label(86, 86, f"+{rest}", 18, INK))
    return shapes


def _player(x: Length, y: Length, r: Length) -> list[Shape]:
    return [
        Disc(x, y, r, PLAYER, EXIT, r / 6),
        Disc(x - r * 0.32, y - r * 0.15, r * 0.14, _DARK),
        Disc(x + r * 0.32, y - r * 0.15, r * 0.14, _DARK),
        Box(x - r * 0.35, y + r * 0.3, r * 0.7, r * 0.16, _DARK, r * 0.08),
    ]


def _enemy(enemy: Enemy, x: Length, y: Length, r: Length) -> list[Shape]:
    color = COLORS[enemy.type]
    shapes: list[Shape] = [
        _body(enemy.type, x, y, r),
        Label(x, y + (r * 0.12 if enemy.type == "daemon" else 0), str(enemy.hp), r, _DARK),
        Label(x, y + r + 8, enemy.type, 13 if r > 18 else 9, color),
    ]
    return [*shapes, *_marks(enemy.marks, x, y, r)]


def _body(type: str, x: Length, y: Length, r: Length) -> Polygon:
    color = COLORS[type]
    if type == "virus":  # spikes all round
        return Polygon(_ring(16, x, y, r, 0.72 * r), color)
    if type == "daemon":  # a head with two horns
        horned = ((-1, -1), (-0.45, -0.5), (0.45, -0.5), (1, -1), (0.8, 0.6), (0, 1), (-0.8, 0.6))
        return Polygon(tuple((x + r * a, y + r * b) for a, b in horned), color)
    if type == "glitch":  # a square whose lower half has slipped
        slipped = ((-0.65, -0.85), (0.95, -0.85), (0.95, 0), (0.65, 0), (0.65, 0.85), (-0.95, 0.85))
        slipped += ((-0.95, 0), (-0.65, 0))
        return Polygon(tuple((x + r * a, y + r * b) for a, b in slipped), color)
    return Polygon(_ring(4, x, y, 1.05 * r, 1.05 * r), color)  # cryptog: a diamond


def _transmission(each: Transmission, x: Length, y: Length, r: Length) -> list[Shape]:
    color = COLORS[each.type] if each.type else COMING
    return [
        Disc(x, y, r, "", color, r / 8),
        Disc(x, y, r * 0.72, "", color, r / 16),
        Label(x, y, str(each.turns), r * 0.8, color),
        Label(x, y + r + 8, each.type or "coming", 13 if r > 18 else 9, color),
        *_marks(each.marks, x, y, r),
    ]


def _marks(marks: str, x: Length, y: Length, r: Length) -> list[Shape]:
    return [Label(x + 1.35 * r, y - 0.2 * r, marks, 0.7 * r, CREDITS)] if marks else []


def _ring(
    corners: int, x: Length, y: Length, r: Length, inner: Length
) -> tuple[tuple[Length, Length], ...]:
    """Points around ``x, y``, clockwise: in turn at distance ``r`` and at distance ``inner``."""
    angles = [2 * math.pi * n / corners for n in range(corners)]
    radii = [inner if n % 2 else r for n in range(corners)]
    return tuple(
        (round(x + q * math.sin(a), 1), round(y - q * math.cos(a), 1))
        for a, q in zip(angles, radii, strict=True)
    )
