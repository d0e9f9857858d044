"""Positions as plain JSON values: for tests, puzzles and bug reports.

A position is a dictionary of numbers and lists:

``stage, turn, show, calm, step, atk_uses, interval, next_task, pending`` (numbers),
``exit [row, col]``, ``player [row, col, hp, credits, energy, data_siphons, score, attack]``,
``owned [program …]``,
``cells [[row, col, kind, points, program, spawn_count, credits, energy, siphoned, center] …]``
(cells with nothing on them may be left out; program −1 is none; kinds: 0 empty, 1 data block, 2
program block, 3 question block holding data, 4 question block holding a program, 5 data siphon, 6
exit), ``enemies [[type, row, col, hp, disabled, stunned, from_siphon, from_task] …]`` and
``transmissions [[row, col, turns, type, from_siphon, from_task] …]``, both in list order, with
types 0 virus, 1 daemon, 2 glitch, 3 cryptog. The history for UNDO is no part of a position.

No stage of a game has a program twice. Rules do not mind, but the default network's features do not
say where such a program is.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from hackmatrix.env import MIN_UNDO_DEPTH, new_state
from hackmatrix.rules.entities import (
    ARRIVAL_SHIFT,
    ENEMY,
    FREE,
    MAX_ENTITIES,
    TRANSMISSION,
    Entities,
)
from hackmatrix.rules.game import NO_PROGRAM, Board, Game, Player, blank_game, replace
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane
from hackmatrix.rules.position_format import (
    CELL_ENTRY,
    DATA,
    ENEMY_ENTRY,
    EXIT,
    EXIT_ENTRY,
    FIELD_OF,
    NUMBERS,
    PICKUP,
    PLAYER_ENTRY,
    PROGRAM,
    QUESTION_DATA,
    QUESTION_PROGRAM,
    TRANSMISSION_ENTRY,
    dump,
    dump_all,
)
from hackmatrix.rules.programs import NUM_PROGRAMS
from hackmatrix.rules.state import MAX_UNDO_DEPTH, State

__all__ = ["dump", "dump_all", "load", "load_all"]

_LISTS = ("exit", "player", "owned", "cells", "enemies", "transmissions")


def load(position: Mapping[str, Any], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """The state of a position, with an empty history.

    Raises:
        ValueError: a key is missing or unknown, a value is out of range, or a cell is given twice;
            the message is one line and names it.
    """
    return _to_state(_game(position), _checked_depth(undo_depth))


def load_all(positions: Sequence[Mapping[str, Any]], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """The states of several positions as one batch; see :func:`load`."""
    undo_depth = _checked_depth(undo_depth)
    games = [_game(position) for position in positions]
    return _to_states(jax.tree.map(lambda *x: np.stack(x), *games), undo_depth)


_to_state = jax.jit(new_state, static_argnums=1)
_to_states = jax.jit(jax.vmap(new_state, (0, None)), static_argnums=1)


def _checked_depth(undo_depth: int) -> int:
    return _in_range("undo_depth", undo_depth, 1, MAX_UNDO_DEPTH)


def _game(position: Mapping[str, Any]) -> Game:
    """The position, taken apart, of NumPy arrays."""
    names = {*NUMBERS, *_LISTS}
    for problem, keys in (
        ("lacks", names - position.keys()),
        ("has the unknown key", set(position) - names),
    ):
        if keys:
            raise ValueError(f"the position {problem} {', '.join(sorted(keys))}")
    row, col, *others = _checked("player", position["player"], PLAYER_ENTRY)
    exit_row, exit_col = _checked("exit", position["exit"], EXIT_ENTRY)
    owned = {_in_range("owned", number, 0, NUM_PROGRAMS - 1) for number in position["owned"]}
    values = {
        FIELD_OF.get(name, name): _in_range(name, position[name], *bounds)
        for name, bounds in NUMBERS.items()
    }
    values |= {
        "exit": exit_row * SIZE + exit_col,
        "owned": sum(1 << number for number in owned),
        "births": len(position["transmissions"]),
        "arrivals": 1,
    }
    blank = _blank()
    numbers = (row * SIZE + col, *others)
    names = [field.name for field in dataclasses.fields(Player)]
    game = replace(
        blank,
        player=replace(blank.player, **dict(zip(names, numbers, strict=True))),
        board=_load_board(blank.board, position["cells"]),
        entities=_load_entities(blank.entities, position["enemies"], position["transmissions"]),
        **values,
    )
    return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), game, blank)


@lru_cache
def _blank() -> Game:
    return jax.device_get(blank_game())


def _in_range(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: {value!r} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is not in {low} to {high}")
    return int(value)


def _checked(name: str, entry: Sequence[int], bounds: Mapping[str, tuple[int, int]]) -> list[int]:
    """The entry's values, as many as there are bounds, each within its own."""
    if len(entry) != len(bounds):
        raise ValueError(f"{name}: {list(entry)} must have {len(bounds)} entries")
    values: list[int] = []
    for value, (field, (low, high)) in zip(entry, bounds.items(), strict=True):
        # The plain case here: thousands of positions have hundreds of numbers each.
        if type(value) is not int or not low <= value <= high:
            value = _in_range(f"{name} {field}", value, low, high)
        values.append(value)
    return values


def _load_board(blank: Board, cells: Sequence[Sequence[int]]) -> Board:
    table = np.zeros((NUM_CELLS, 8), np.int8)
    table[:, 2] = NO_PROGRAM
    given: set[tuple[int, int]] = set()
    for cell in cells:
        row, col, *values = _checked("cells", cell, CELL_ENTRY)
        if (row, col) in given:
            raise ValueError(f"cells: the cell [{row}, {col}] is given twice")
        given.add((row, col))
        table[row * SIZE + col] = values
    kind, points, program, spawn_count, credits, energy, siphoned, centers = table.T
    return replace(
        blank,
        data=_plane(np.isin(kind, (DATA, QUESTION_DATA))),
        program_blocks=_plane(np.isin(kind, (PROGRAM, QUESTION_PROGRAM))),
        question=_plane(np.isin(kind, (QUESTION_DATA, QUESTION_PROGRAM))),
        pickups=_plane(kind == PICKUP),
        exits=_plane(kind == EXIT),
        siphoned=_plane(siphoned != 0),
        centers=_plane(centers != 0),
        points=points,
        program=program,
        spawn_count=spawn_count,
        credits=credits,
        energy=energy,
    )


def _plane(flags: np.ndarray) -> Plane:
    bits = sum(1 << int(cell) for cell in np.flatnonzero(flags))
    half = NUM_CELLS // 2
    return Plane(bits % (1 << half), bits >> half)  # pyright: ignore[reportArgumentType]


def _load_entities(
    blank: Entities, enemies: Sequence[Sequence[int]], transmissions: Sequence[Sequence[int]]
) -> Entities:
    number = len(enemies) + len(transmissions)
    if number > MAX_ENTITIES:
        raise ValueError(
            f"enemies and transmissions: {number} of them, at most {MAX_ENTITIES} have room"
        )
    rows: list[tuple[int, ...]] = []
    for number, entry in enumerate(enemies):
        type, row, col, hp, *flags = _checked("enemies", entry, ENEMY_ENTRY)
        order = (1 << ARRIVAL_SHIFT) + number
        rows.append((ENEMY, type, row * SIZE + col, hp, 0, *flags, order))
    for number, entry in enumerate(transmissions):
        row, col, turns, type, *flags = _checked("transmissions", entry, TRANSMISSION_ENTRY)
        rows.append((TRANSMISSION, type, row * SIZE + col, 0, turns, 0, 0, *flags, number))
    rows += [(FREE,) + (0,) * 9] * (MAX_ENTITIES - len(rows))
    names = [field.name for field in dataclasses.fields(Entities)]
    return replace(blank, **dict(zip(names, np.array(rows).T, strict=True)))
