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

from hackmatrix.entities import (
    ARRIVAL_SHIFT,
    ENEMY,
    FREE,
    MAX_ENTITIES,
    NUM_TYPES,
    TRANSMISSION,
    Entities,
)
from hackmatrix.env import MIN_UNDO_DEPTH, new_state
from hackmatrix.game import (
    MAX_HP,
    NO_PROGRAM,
    NUM_STAGES,
    Board,
    Game,
    Player,
    blank_game,
    replace,
)
from hackmatrix.planes import NUM_CELLS, SIZE, Plane
from hackmatrix.programs import NUM_PROGRAMS
from hackmatrix.state import Kept, State

EMPTY, DATA, PROGRAM, QUESTION_DATA, QUESTION_PROGRAM, PICKUP, EXIT = range(7)

# The smallest and the largest value of each entry.
_LARGE = (1 << 15) - 1
_FLAG, _INDEX, _AMOUNT = (0, 1), (0, SIZE - 1), (0, _LARGE)
_NUMBERS = {
    "stage": (1, NUM_STAGES),
    "turn": _AMOUNT,
    "show": _FLAG,
    "calm": _FLAG,
    "step": _FLAG,
    "atk_uses": _AMOUNT,
    "interval": (1, _LARGE),
    "next_task": _AMOUNT,
    "pending": _AMOUNT,
}
_EXIT = {"row": _INDEX, "col": _INDEX}
_PLAYER = {
    "row": _INDEX,
    "col": _INDEX,
    "hp": (0, MAX_HP),
    "credits": _AMOUNT,
    "energy": _AMOUNT,
    "data_siphons": _AMOUNT,
    "score": _AMOUNT,
    "attack": (1, _LARGE),
}
_CELL = {
    "row": _INDEX,
    "col": _INDEX,
    "kind": (EMPTY, EXIT),
    "points": (0, 9),
    "program": (NO_PROGRAM, NUM_PROGRAMS - 1),
    "spawn_count": (0, 9),
    "credits": (0, 3),
    "energy": (0, 3),
    "siphoned": _FLAG,
    "center": _FLAG,
}
_ORIGIN = {"from_siphon": _FLAG, "from_task": _FLAG}
_TYPE = (0, NUM_TYPES - 1)
_ENEMY = {
    "type": _TYPE,
    "row": _INDEX,
    "col": _INDEX,
    "hp": (1, 3),
    "disabled": (0, 9),
    "stunned": _FLAG,
    **_ORIGIN,
}
_TRANSMISSION = {"row": _INDEX, "col": _INDEX, "turns": (1, _LARGE), "type": _TYPE, **_ORIGIN}
_FIELD_OF = {"step": "step_pending"}
_LISTS = ("exit", "player", "owned", "cells", "enemies", "transmissions")


def load(position: Mapping[str, Any], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """The state of a position, with an empty history.

    Raises:
        ValueError: a key is missing or unknown, a value is out of range, or a cell is given twice;
            the message is one line and names it.
    """
    return _to_state(_game(position), undo_depth)


def load_all(positions: Sequence[Mapping[str, Any]], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """The states of several positions as one batch; see :func:`load`."""
    games = [_game(position) for position in positions]
    return _to_states(jax.tree.map(lambda *x: np.stack(x), *games), undo_depth)


_to_state = jax.jit(new_state, static_argnums=1)
_to_states = jax.jit(jax.vmap(new_state, (0, None)), static_argnums=1)


def _game(position: Mapping[str, Any]) -> Game:
    """The position, taken apart, of NumPy arrays."""
    names = {*_NUMBERS, *_LISTS}
    for problem, keys in (
        ("lacks", names - position.keys()),
        ("has the unknown key", set(position) - names),
    ):
        if keys:
            raise ValueError(f"the position {problem} {', '.join(sorted(keys))}")
    row, col, *others = _checked("player", position["player"], _PLAYER)
    exit_row, exit_col = _checked("exit", position["exit"], _EXIT)
    owned = {_in_range("owned", number, 0, NUM_PROGRAMS - 1) for number in position["owned"]}
    values = {
        _FIELD_OF.get(name, name): _in_range(name, position[name], *bounds)
        for name, bounds in _NUMBERS.items()
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


def dump(state: State) -> dict[str, Any]:
    """The position of a state, of numbers and lists only."""
    parts = jax.device_get(_take_apart(state.kept))
    (position,) = _positions(*jax.tree.map(lambda x: x[None], parts))
    return position


def dump_all(states: State) -> list[dict[str, Any]]:
    """The positions of a batch of states; see :func:`dump`."""
    return _positions(*jax.device_get(_take_all_apart(states.kept)))


@jax.jit
def _take_apart(kept: Kept) -> tuple[Game, Mapping[str, Any]]:
    """The game, and the sets of cells of its board as flags [cells]."""
    game = kept.game
    planes = {name: x for name, x in vars(game.board).items() if isinstance(x, Plane)}
    return game, {name: plane.flags() for name, plane in planes.items()}


_take_all_apart = jax.jit(jax.vmap(_take_apart))


def _positions(games: Game, flags: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The positions of games, of NumPy arrays with one leading axis, from what was taken apart."""
    player, table = games.player, games.entities
    numbers = _table(*(getattr(games, _FIELD_OF.get(name, name)) for name in _NUMBERS))
    exits = _table(*divmod(games.exit, SIZE))
    players = _table(
        *divmod(player.cell, SIZE),
        player.hp,
        player.credits,
        player.energy,
        player.data_siphons,
        player.score,
        player.attack,
    )
    where, origin = divmod(table.cell, SIZE), (table.from_siphon, table.from_task)
    enemy = _table(table.type, *where, table.hp, table.disabled, table.stunned, *origin)
    transmission = _table(*where, table.turns, table.type, *origin)
    boards = _boards(games.board, flags)
    kinds, orders = np.asarray(table.kind), np.asarray(table.order)
    positions: list[dict[str, Any]] = []
    for game, owned in enumerate(games.owned.tolist()):
        kind, order = kinds[game], orders[game]
        positions.append(
            {
                **dict(zip(_NUMBERS, numbers[game], strict=True)),
                "exit": exits[game],
                "player": players[game],
                "owned": [number for number in range(NUM_PROGRAMS) if owned >> number & 1],
                "cells": [cell for cell in boards[game] if cell[2:] != _NOTHING],
                "enemies": [enemy[game][i] for i in _in_order(kind == ENEMY, order)],
                "transmissions": [
                    transmission[game][i] for i in _in_order(kind == TRANSMISSION, order)
                ],
            }
        )
    return positions


def _table(*columns: Any) -> list[Any]:
    """The columns side by side, as lists of whole numbers."""
    return np.stack([np.asarray(column, int) for column in columns], axis=-1).tolist()


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
        row, col, *values = _checked("cells", cell, _CELL)
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


_NOTHING = [EMPTY, 0, NO_PROGRAM, 0, 0, 0, 0, 0]


def _boards(board: Board, flags: Mapping[str, np.ndarray]) -> list[list[list[int]]]:
    """All cells of each board, as in a position."""
    kind = np.zeros((len(board.points), NUM_CELLS), int)
    kind[flags["exits"]] = EXIT
    kind[flags["pickups"]] = PICKUP
    kind[flags["data"]] = DATA
    kind[flags["program_blocks"]] = PROGRAM
    kind[flags["question"]] += QUESTION_DATA - DATA
    where = (np.broadcast_to(x, kind.shape) for x in divmod(np.arange(NUM_CELLS), SIZE))
    return _table(
        *where,
        kind,
        board.points,
        board.program,
        board.spawn_count,
        board.credits,
        board.energy,
        flags["siphoned"],
        flags["centers"],
    )


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
        type, row, col, hp, *flags = _checked("enemies", entry, _ENEMY)
        order = (1 << ARRIVAL_SHIFT) + number
        rows.append((ENEMY, type, row * SIZE + col, hp, 0, *flags, order))
    for number, entry in enumerate(transmissions):
        row, col, turns, type, *flags = _checked("transmissions", entry, _TRANSMISSION)
        rows.append((TRANSMISSION, type, row * SIZE + col, 0, turns, 0, 0, *flags, number))
    rows += [(FREE,) + (0,) * 9] * (MAX_ENTITIES - len(rows))
    names = [field.name for field in dataclasses.fields(Entities)]
    return replace(blank, **dict(zip(names, np.array(rows).T, strict=True)))


def _in_order(members: np.ndarray, order: np.ndarray) -> list[int]:
    return sorted(np.flatnonzero(members).tolist(), key=order.__getitem__)
