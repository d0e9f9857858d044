"""A scene as a drawing: the player's values, the board, the programs owned."""

from hackmatrix.render.scene import Scene
from hackmatrix.render.shapes import Box, Drawing, Group, Label, Length, Polygon, Shape
from hackmatrix.render.tiles import (
    BACKGROUND,
    COLORS,
    CREDITS,
    DIM,
    ENERGY,
    EXIT,
    FLOOR,
    INK,
    SIPHON,
    TILE,
    tile,
)
from hackmatrix.rules.game import MAX_HP
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS

_MARGIN = 26
_LINE = 26
_BOARD = SIZE * TILE
_CARDS_A_ROW = 6
_CARD_HEIGHT = 34
_HEADER = 78
_VALUE_COLORS = {"credits": CREDITS, "energy": ENERGY, "siphons": SIPHON, "stage": EXIT}


def rows_of(programs: int) -> int:
    """How many rows the programs take; the text "no programs" takes one row, too."""
    return -(-max(programs, 1) // _CARDS_A_ROW)


def board(scene: Scene, x: Length = 0, y: Length = 0) -> list[Group]:
    """The 36 cells, in the scene's order; the board's top left corner is at ``x, y``."""
    tiles: list[Group] = []
    for cell in scene.cells:
        drawn = tile(cell)
        at_x, at_y = x + cell.col * TILE, y + (SIZE - 1 - cell.row) * TILE
        tiles.append(Group(at_x, at_y, drawn.title, drawn.shapes))
    return tiles


def sheet(scene: Scene, caption: str = "", *, card_rows: int | None = None) -> Drawing:
    """The whole position.

    Args:
        scene: the scene to draw.
        caption: the line below the drawing.
        card_rows: rows to leave for programs; by default as many as the owned programs take.
    """
    top = _MARGIN + _HEADER
    parts: list[Group | Shape] = [*_values(scene), *board(scene, _MARGIN, top)]
    for n in range(SIZE):
        middle = n * TILE + TILE / 2
        parts.append(Label(_MARGIN / 2, top + _BOARD - middle, str(n), 14, DIM))
        parts.append(Label(_MARGIN + middle, top + _BOARD + _MARGIN / 2, str(n), 14, DIM))
    rows = rows_of(len(scene.programs)) if card_rows is None else card_rows
    y = top + _BOARD + _MARGIN
    parts += _programs(scene, y)
    y += rows * _CARD_HEIGHT
    if caption:
        parts.append(Label(_MARGIN, y + _LINE / 2, caption, 17, INK, centered=False))
        y += _LINE
    width, height = _BOARD + 2 * _MARGIN, y + _MARGIN / 2
    title = f"HackMatrix, stage {scene.stage}, hp {scene.hp}"
    return Drawing(width, height, BACKGROUND, title, tuple(parts))


def _values(scene: Scene) -> list[Shape]:
    named = dict(scene.values())
    shapes: list[Shape] = [Label(_MARGIN, 26, "hp", 15, DIM, centered=False)]
    for n in range(MAX_HP):
        color = COLORS["virus"] if n < scene.hp else FLOOR
        shapes.append(_heart(_MARGIN + 40 + 27 * n, 26, 11, color))
    x = _MARGIN + 128.0
    for name in ("credits", "energy", "siphons", "attack", "score", "stage"):
        color = _VALUE_COLORS.get(name, INK)
        shapes.append(Label(x, 16, name, 13, DIM, centered=False))
        shapes.append(Label(x, 37, named[name], 22, color, centered=False))
        x += 88
    second = [f"turn {scene.turn}", f"next spawn at turn {named['next spawn at turn']}"]
    second += [flag.upper() if " " not in flag else flag for flag in scene.flags()]
    shapes.append(Label(_MARGIN, 70, "   ".join(second), 16, DIM, centered=False))
    return shapes


def _heart(x: Length, y: Length, r: Length, fill: str) -> Polygon:
    outline = ((0, -0.5), (0.5, -0.95), (1, -0.5), (0.95, 0.05), (0, 1))
    left = [(-a, b) for a, b in reversed(outline[1:-1])]
    points = tuple((round(x + r * a, 1), round(y + r * b, 1)) for a, b in (*outline, *left))
    return Polygon(points, fill, COLORS["virus"], 1.5)


def _programs(scene: Scene, y: Length) -> list[Group | Shape]:
    if not scene.programs:
        middle = y + _CARD_HEIGHT / 2
        return [Label(_MARGIN, middle, "no programs", 15, DIM, centered=False)]
    cards: list[Group | Shape] = []
    for n, number in enumerate(scene.programs):
        card = CARDS[number]
        at_x = _MARGIN + n % _CARDS_A_ROW * TILE
        at_y = y + n // _CARDS_A_ROW * _CARD_HEIGHT
        shapes = (
            Box(1.5, 2, 97, _CARD_HEIGHT - 4, "#2a1d40", 6, COLORS["glitch"], 1),
            Label(7, _CARD_HEIGHT / 2, card.name, 13, INK, centered=False),
            Label(78, _CARD_HEIGHT / 2, card.price, 11, CREDITS),
        )
        cards.append(Group(at_x, at_y, f"program {card.name}, price {card.price}", shapes))
    return cards
