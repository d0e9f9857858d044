"""Draws the pictures of the game's pages: ``python docs/_site/pictures.py``.

The game itself plays the actions, and its own renderer draws the positions.
``tests/hackmatrix/test_game_page.py`` fails if a picture in ``docs/images/game`` differs from what
is drawn here.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from hackmatrix import HackMatrix, State, positions
from hackmatrix.actions import find_action
from hackmatrix.render.scene import Scene, scene
from hackmatrix.render.shapes import Drawing, Group, Label, Polygon, Shape
from hackmatrix.render.sheet import board, sheet
from hackmatrix.render.svg import drawn
from hackmatrix.render.tiles import BACKGROUND, DIM, INK, TILE
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import Program

FOLDER = Path(__file__).parents[1] / "images" / "game"

VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
DATA, PROGRAM, QUESTION, PICKUP, EXIT = 1, 2, 3, 5, 6

_GAP, _HEADER, _MARGIN = 70, 34, 14


class Area(NamedTuple):
    """A part of the board: rows and columns from the first to the last."""

    rows: tuple[int, int] = (0, SIZE - 1)
    cols: tuple[int, int] = (0, SIZE - 1)


def position(
    player: Sequence[int],
    cells: Sequence[Sequence[int]],
    enemies: Sequence[Sequence[int]] = (),
    transmissions: Sequence[Sequence[int]] = (),
    **numbers: Any,
) -> State:
    """A position.

    Args:
        player: row, column, and then hp, credits, energy, data siphons, score, attack, or fewer.
        cells: row, column, kind, points, program, spawn count, credits, energy, siphoned, center,
            or fewer.
        enemies: type, row, column, hp, disabled, stunned, from a siphon, or fewer.
        transmissions: row, column, turns, or fewer.
        numbers: other entries of the position.
    """

    def filled(given: Sequence[int], rest: Sequence[int]) -> list[int]:
        return [*given, *rest[len(given) :]]

    return positions.load(
        {
            "stage": 2,
            "turn": 4,
            "exit": [5, 5],
            "show": 0,
            "calm": 0,
            "step": 0,
            "atk_uses": 0,
            "interval": 11,
            "next_task": 11,
            "pending": 0,
            "owned": [],
            "player": filled(player, (0, 0, 3, 4, 3, 1, 0, 1)),
            "cells": [
                *(filled(cell, (0, 0, 0, 0, -1, 0, 0, 0, 0, 0)) for cell in cells),
                filled([5, 5, EXIT], (0, 0, 0, 0, -1, 0, 0, 0, 0, 0)),
            ],
            "enemies": [filled(enemy, (0, 0, 0, 2, 0, 0, 0, 0)) for enemy in enemies],
            "transmissions": [filled(each, (0, 0, 1, 0, 0, 0)) for each in transmissions],
            **numbers,
        }
    )


def stack_scalars(scenes: Sequence[Scene], headers: Sequence[str], area: Area, title: str) -> str:
    """Parts of boards side by side, with an arrow between and a line above each, as SVG."""
    (low, high), (left, right) = area
    width, height = (right - left + 1) * TILE, (high - low + 1) * TILE
    y = _MARGIN + (_HEADER if any(headers) else 0)
    parts: list[Group | Shape] = []
    for n, (each, header) in enumerate(zip(scenes, headers, strict=True)):
        x = _MARGIN + n * (width + _GAP)
        if header:
            parts.append(Label(x + 2, _MARGIN + 12, header, 20, INK, centered=False))
        tiles = board(each, x - left * TILE, y - (SIZE - 1 - high) * TILE)
        parts += [
            cell
            for cell, what in zip(tiles, each.cells, strict=True)
            if low <= what.row <= high and left <= what.col <= right
        ]
        if n:
            tip, middle = x - _GAP / 4, y + height / 2
            arrow = ((-30, -18), (0, 0), (-30, 18))
            parts.append(Polygon(tuple((tip + a, middle + b) for a, b in arrow), DIM))
    count = len(scenes)
    return drawn(
        Drawing(
            2 * _MARGIN + count * width + (count - 1) * _GAP,
            y + height + _MARGIN,
            BACKGROUND,
            title,
            tuple(parts),
        )
    )


def values(shown: Scene, *names: str) -> str:
    """Some of the player's values in words."""
    named = {"hp": str(shown.hp), **dict(shown.values())}
    return "  ".join(f"{name} {named[name]}" for name in names)


def played(start: State, action: str, area: Area, *shown: str) -> str:
    """A position and what an action makes of it, with the player's values that change."""
    number = find_action(action)
    assert number is not None
    assert bool(ENV.action_mask(start)[number]), action
    end, _ = ENV.step(jax.random.key(1), start, jnp.int32(number))
    scenes = [scene(start), scene(end)]
    headers = [values(each, *shown) for each in scenes]
    headers[1] = f"{action}:  {headers[1]}"
    return stack_scalars(scenes, headers, area, f"Before and after {action}")


ENV = HackMatrix()


def whole_board() -> str:
    """A position with something of everything."""
    state = position(
        (1, 2, 2, 12, 8, 1, 9, 1),
        [
            (5, 0, PICKUP, 0, -1, 0, 1),
            (0, 0, PICKUP, 0, -1, 0, 0, 2),
            (4, 1, DATA, 7, -1, 7),
            (4, 2, DATA, 2, -1, 0, 0, 0, 1),
            (4, 4, PROGRAM, 0, Program.HACK, 4),
            (3, 4, QUESTION, 4, -1, 4),
            (3, 1, 0, 0, -1, 0, 0, 0, 1),
            (2, 3, PROGRAM, 0, Program.ROW, 2),
            (1, 4, DATA, 3, -1, 3),
            (3, 2, 0, 0, -1, 0, 0, 0, 1, 1),
            (3, 3, 0, 0, -1, 0, 0, 0, 1),
            (2, 2, 0, 0, -1, 0, 0, 0, 1),
            (5, 2, 0, 0, -1, 0, 2),
            (5, 3, 0, 0, -1, 0, 0, 1),
            (4, 0, 0, 0, -1, 0, 0, 3),
            (2, 0, 0, 0, -1, 0, 1),
            (1, 1, 0, 0, -1, 0, 0, 2),
            (0, 2, 0, 0, -1, 0, 3),
            (0, 4, 0, 0, -1, 0, 0, 1),
            (2, 5, 0, 0, -1, 0, 2),
            (3, 5, 0, 0, -1, 0, 0, 1),
        ],
        [(VIRUS, 5, 2, 2, 0, 0, 1), (DAEMON, 2, 5, 3), (GLITCH, 2, 3, 1), (CRYPTOG, 1, 0, 2)],
        [(0, 3, 1, VIRUS), (5, 4, 1, DAEMON)],
        stage=3,
        interval=9,  # 10, one less for the siphon
        turn=9,
        next_task=17,
        owned=[Program.DEBUG, Program.EXCH, Program.WAIT],
    )
    return drawn(sheet(scene(state)))


def attack() -> str:
    """A shot at an enemy far away."""
    start = position(
        (1, 0),
        [(0, 2, DATA, 5, -1, 5), (2, 4, PROGRAM, 0, Program.POLY, 3)],
        [(DAEMON, 1, 4, 3), (VIRUS, 0, 5, 2)],
    )
    return played(start, "right", Area((0, 2), (0, 5)), "hp")


def siphon() -> str:
    """The siphon's cross."""
    start = position(
        (2, 2, 3, 4, 3, 2, 0, 1),
        [
            (2, 3, DATA, 2, -1, 2),
            (3, 2, PROGRAM, 0, Program.WAIT, 1),
            (2, 1, 0, 0, -1, 0, 3),
            (1, 2, 0, 0, -1, 0, 0, 2),
            (4, 3, DATA, 4, -1, 4),
            (3, 4, QUESTION, 4, -1, 4),
            (1, 4, 0, 0, -1, 0, 1),
        ],
    )
    return played(start, "siphon", Area(), "siphons", "credits", "energy", "score")


def program() -> str:
    """PUSH."""
    start = position(
        (1, 2),
        [(2, 4, DATA, 5, -1, 5), (0, 1, PROGRAM, 0, Program.POLY, 3)],
        [(VIRUS, 1, 3), (DAEMON, 2, 2, 3), (GLITCH, 1, 1)],
        owned=[Program.PUSH],
    )
    return played(start, "PUSH", Area((0, 3), (0, 5)), "energy")


def enemies() -> str:
    """The four types, the marks beside them, and a transmission."""
    state = position(
        (0, 5),
        [],
        [(VIRUS, 0, 0), (DAEMON, 0, 1, 3, 1), (GLITCH, 0, 2, 2, 0, 1), (CRYPTOG, 0, 3, 2, 0, 0, 1)],
        [(0, 4, 1)],
    )
    title = "virus, daemon, glitch, cryptog, a transmission, the player"
    return stack_scalars([scene(state)], [""], Area((0, 0), (0, 5)), title)


def cryptog() -> str:
    """A cryptog that comes into the player's line."""
    start = position((1, 1), [(2, 2, DATA, 5, -1, 5)], [(CRYPTOG, 2, 4)], owned=[Program.SHOW])
    return played(start, "SHOW", Area((0, 3), (0, 5)), "credits")


PICTURES = {
    "board": whole_board,
    "attack": attack,
    "siphon": siphon,
    "program": program,
    "enemies": enemies,
    "cryptog": cryptog,
}

if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, draw in PICTURES.items():
        (FOLDER / f"{name}.svg").write_text(draw() + "\n")
