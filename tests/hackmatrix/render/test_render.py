"""The text of a position: everything the player may see is found in it, and nothing else."""

import re

import pytest

from games import position
from hackmatrix import positions
from hackmatrix.render import text
from hackmatrix.rules.programs import CARDS
from recorded import row, starts, states

VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
NAMES = ("virus", "daemon", "glitch", "crypto")


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


@pytest.fixture(scope="module")
def recorded():
    """Positions, and their cells as the player sees them and as they are."""
    return [
        (starts()[n], text(row(states(), n)), text(row(states(), n), reveal=True))
        for n in range(0, 400, 8)
    ]


def test_every_recorded_entity_is_found_and_hidden_ones_are_not(recorded):
    assert len(recorded) == 50
    for each, *shown in recorded:
        hidden, everything = map(board, shown)
        row, col = each["player"][:2]
        assert hidden[row, col][0].startswith("@")
        first = {}
        for type, r, c, hp, *_ in each["enemies"]:
            first.setdefault((r, c), (type, hp))
        for (r, c), (type, hp) in first.items():
            # In a full cell a name has less room.
            name = re.compile(rf"{NAMES[type][:2]}[a-z]*{hp}")
            seen = type != CRYPTOG or each["show"] or r == row or c == col
            assert name.search(everything[r, c][0]), (r, c)
            assert bool(name.search(hidden[r, c][0])) == bool(seen), (r, c)
        for r, c, turns, type, *_ in each["transmissions"]:
            assert f">{turns}" in hidden[r, c][0]
            if (r, c) not in first and (r, c) != (row, col):
                assert NAMES[type] in everything[r, c][0]
                assert (NAMES[type] in hidden[r, c][0]) == bool(each["show"])


def test_every_recorded_cell_is_found_and_question_blocks_are_not(recorded):
    for each, *shown in recorded:
        hidden, everything = map(board, shown)
        for r, c, kind, points, program, spawns, credits, energy, siphoned, _ in each["cells"]:
            what, all_of_it = hidden[r, c][1], everything[r, c][1]
            if kind in (3, 4):
                assert what.startswith("[?]")
            content = {5: "siphon", 6: "EXIT", 1: f"[{points}]", 3: f"[{points}]"}.get(kind, "")
            if kind in (2, 4):
                content = f"[{CARDS[program].name[:3]}"
            assert all_of_it.startswith(content)
            assert kind in (3, 4) or what.startswith(content)
            if kind in (1, 2, 3, 4) and spawns:
                assert f"x{spawns}" in all_of_it
            lying = f"{credits}c" if credits else f"{energy}e" if energy else ""
            assert lying in all_of_it
            assert lying in what or (kind in (1, 2, 3, 4) and not siphoned)


def test_it_fits_a_terminal(recorded):
    goods = position(credits=123, energy=456, siphons=12, score=78, enemies=[(VIRUS, 2, 2)] * 3)
    flags = {"show": 1, "calm": 1, "step": 1, "pending": 9, "atk_uses": 2}
    for shown in [show(goods | flags), *(shown for each in recorded for shown in each[1:])]:
        lines = shown.splitlines()
        assert len(lines) <= 24
        assert max(map(len, lines)) <= 80, max(lines, key=len)


def test_a_whole_position():
    start = position(
        hp=2,
        cells=[
            (2, 3, 1, 5, -1, 5, 0, 0, 0, 0),
            (2, 1, 2, 0, 18, 0, 0, 2, 1, 1),
            (0, 0, 5, 0, -1, 0, 3, 0, 0, 0),
        ],
        enemies=[(VIRUS, 4, 2, 2, 0, 1, 0, 0), (VIRUS, 4, 2)],
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
        "2 |           |           |@          |           |           |           |",
        "  |           |[ANTI-]2e-*|           |[5] x5     |           |           |",
    ]
    assert board(show(start))[1, 1] == (">3", "")
    assert board(show(start))[0, 0] == ("", "siphon 3c")
    assert lines[-1] == "PUSH 2e           EXCH 4c"


def test_colors_change_nothing_but_colors():
    start = position(enemies=[(VIRUS, 4, 2)], blocks=[(1, 1)])
    colored = show(start, color=True)
    assert "\x1b[31mvirus2" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == show(start)
