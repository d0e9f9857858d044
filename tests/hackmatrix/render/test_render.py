"""The text of a position; what is hidden in a scene is seen in ``test_scene.py``."""

import re

from games import CRYPTOG, DAEMON, VIRUS, position
from hackmatrix import positions
from hackmatrix.render import text
from recorded import row, states


def show(start, **options):
    return text(positions.load(start), **options)


def board(shown):
    """The two lines of each cell."""
    lines = [line.split("|")[1:-1] for line in shown.splitlines() if "|" in line]
    return {
        (5 - n // 2, col): (lines[n][col].strip(), lines[n + 1][col].strip())
        for n in range(0, 12, 2)
        for col in range(6)
    }


def test_it_fits_a_terminal():
    goods = position(credits=123, energy=456, siphons=12, score=78, enemies=[(VIRUS, 2, 2)] * 3)
    flags = {"show": 1, "calm": 1, "step": 1, "pending": 9, "atk_uses": 2}
    recorded = [row(states(), n) for n in range(0, 400, 8)]
    for state in (positions.load(goods | flags), *recorded):
        for reveal in (False, True):
            lines = text(state, reveal=reveal).splitlines()
            assert len(lines) <= 24
            assert max(map(len, lines)) <= 80, max(lines, key=len)


CELLS = {
    (1, 1): ((">3", ""), (">3daemon", "")),
    (0, 0): (("", "siphon 3c"), ("", "siphon 3c")),
    (5, 5): (("", "EXIT"), ("", "EXIT")),
    (1, 3): (("", "1e"), ("", "1e")),
    (3, 4): (("", "[?]"), ("", "[5] ? x2 1c")),
    (4, 4): (("", "[?]"), ("", "[PUSH] ? 2e")),
    (0, 5): (("", ""), ("crypto2", "")),
    (2, 5): (("crypto2", ""), ("crypto2", "")),
}
"""What cells show to the player, and with everything revealed."""


def test_a_whole_position():
    start = position(
        hp=2,
        cells=[
            (2, 3, 1, 5, -1, 5, 0, 0, 0, 0),
            (2, 1, 2, 0, 18, 0, 0, 2, 1, 1),
            (0, 0, 5, 0, -1, 0, 3, 0, 0, 0),
            (3, 4, 3, 5, -1, 2, 1, 0, 0, 0),
            (4, 4, 4, 0, 0, 0, 0, 2, 0, 0),
            (1, 3, 0, 0, -1, 0, 0, 1, 0, 0),
        ],
        enemies=[(VIRUS, 4, 2, 2, 0, 1, 0, 0), (VIRUS, 4, 2), (CRYPTOG, 0, 5), (CRYPTOG, 2, 5)],
        transmissions=[(1, 1, 3, DAEMON, 0, 0)],
        owned=[0, 12],
    )
    lines = [line.rstrip() for line in show(start).splitlines()]
    assert lines[:2] == [
        "hp 2/3  credits 20  energy 20  siphons 1  attack 1  score 0",
        "stage 1/8  turn 3  next spawn at turn 90 (every 12)",
    ]
    assert lines[5] == "4 |           |           |virus2!+1  |           |           |           |"
    assert lines[9:11] == [
        "2 |           |           |@          |           |           |crypto2    |",
        "  |           |[ANTI-]2e-*|           |[5] x5     |           |           |",
    ]
    shown = board(show(start)), board(show(start, reveal=True))
    assert {cell: tuple(each[cell] for each in shown) for cell in CELLS} == CELLS
    assert lines[-1] == "PUSH 2e           EXCH 4c"


def test_colors_change_nothing_but_colors():
    start = position(enemies=[(VIRUS, 4, 2)], blocks=[(1, 1)])
    colored = show(start, color=True)
    assert "\x1b[31mvirus2" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == show(start)
