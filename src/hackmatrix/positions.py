"""Positions as plain JSON values: for tests, puzzles and bug reports.

A position is a dictionary of numbers and lists:

- ``stage, turn, show, calm, step, atk_uses, interval, next_task, pending``: numbers, as in
  :class:`hackmatrix.rules.game.Game` (there, ``step`` is ``step_pending``).
- ``exit``: ``[row, col]``.
- ``player``: ``[row, col, hp, credits, energy, data_siphons, score, attack]``.
- ``owned``: the numbers of the programs owned.
- ``cells``: ``[row, col, kind, points, program, spawn_count, credits, energy, siphoned, center]``
  for each cell; cells with nothing on them may be left out. The kinds are 0 empty, 1 data block,
  2 program block, 3 question block with data, 4 question block with a program, 5 data siphon,
  6 exit. ``program`` is -1 except on kinds 2 and 4.
- ``enemies``: ``[type, row, col, hp, disabled, stunned, from_siphon, from_task]`` for each enemy,
  in list order (see :mod:`hackmatrix.rules.entities`). The types are 0 virus, 1 daemon,
  2 glitch, 3 cryptog.
- ``transmissions``: ``[row, col, turns, type, from_siphon, from_task]`` for each transmission, in
  list order.

A position does not include the history for UNDO.

In a game, no stage has two blocks with the same program. A position may have two such blocks,
but then the features of the default network do not locate the program.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import jax
import numpy as np

from hackmatrix.env import MIN_UNDO_DEPTH, new_state
from hackmatrix.rules.entities import ARRIVAL_SHIFT, ENEMY, MAX_ENTITIES, NUM_TYPES, TRANSMISSION
from hackmatrix.rules.game import (
    MAX_HP,
    NO_PROGRAM,
    NUM_STAGES,
    Board,
    Game,
    Player,
    blank_game,
    build,
    replace,
)
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane
from hackmatrix.rules.programs import NUM_PROGRAMS
from hackmatrix.rules.state import MAX_UNDO_DEPTH, State

__all__ = ["dump", "dump_all", "load", "load_all"]

EMPTY, DATA, PROGRAM, QUESTION_DATA, QUESTION_PROGRAM, PICKUP, EXIT = range(7)

# The names of each list's values, in order, with their bounds. The rules' fields have the same
# names, except that a single field, the cell, holds row and column.
_Entry = dict[str, tuple[int, int]]
_LARGE = (1 << 15) - 1
_FLAG, _INDEX, _AMOUNT = (0, 1), (0, SIZE - 1), (0, _LARGE)
_NUMBERS: _Entry = {
    "stage": (1, NUM_STAGES),
    "turn": _AMOUNT,
    **dict.fromkeys(("show", "calm", "step"), _FLAG),
    "atk_uses": _AMOUNT,
    "interval": (1, _LARGE),
    "next_task": _AMOUNT,
    "pending": _AMOUNT,
}
_PLACE: _Entry = {"row": _INDEX, "col": _INDEX}
_PLAYER: _Entry = {
    **_PLACE,
    "hp": (0, MAX_HP),
    **dict.fromkeys(("credits", "energy", "data_siphons", "score"), _AMOUNT),
    "attack": (1, _LARGE),
}
_CELL: _Entry = {
    **_PLACE,
    "kind": (EMPTY, EXIT),
    "points": (0, 9),
    "program": (NO_PROGRAM, NUM_PROGRAMS - 1),
    "spawn_count": (0, 9),
    "credits": (0, 3),
    "energy": (0, 3),
    "siphoned": _FLAG,
    "center": _FLAG,
}
_HALF = NUM_CELLS // 2  # cells in each word of a plane
_NOTHING = [EMPTY, 0, NO_PROGRAM, 0, 0, 0, 0, 0]
_TYPE = (0, NUM_TYPES - 1)
_ORIGIN: _Entry = {"from_siphon": _FLAG, "from_task": _FLAG}
_ENEMY: _Entry = {
    "type": _TYPE,
    **_PLACE,
    "hp": (1, 3),
    "disabled": (0, 9),
    "stunned": _FLAG,
    **_ORIGIN,
}
_TRANSMISSION: _Entry = {**_PLACE, "turns": (1, _LARGE), "type": _TYPE, **_ORIGIN}
FIELD_OF = {"step": "step_pending"}
"""Maps a position's key to the game's field, where their names differ."""


def dump(state: State) -> dict[str, Any]:
    """Returns the position of a state."""
    (position,) = _positions(jax.tree.map(lambda x: x[None], jax.device_get(state.game)))
    return position


def dump_all(states: State) -> list[dict[str, Any]]:
    """Returns the positions of a batch of states; see :func:`dump`."""
    return _positions(jax.device_get(states.game))


def _positions(games: Game) -> list[dict[str, Any]]:
    """The positions of a batch of games, given as NumPy arrays."""
    player, table, board = games.player, games.entities, vars(games.board)
    flags = {name: _flags(value) for name, value in board.items() if isinstance(value, Plane)}
    named = vars(games) | {name: getattr(games, field) for name, field in FIELD_OF.items()}
    numbers = _rows(_NUMBERS, named, games.exit)
    exits = _rows(_PLACE, {}, games.exit)
    players = _rows(_PLAYER, vars(player), player.cell)
    kind = np.zeros((len(exits), NUM_CELLS), int)
    for name, number in (("exits", EXIT), ("pickups", PICKUP), ("data", DATA)):
        kind[flags[name]] = number
    kind[flags["program_blocks"]] = PROGRAM
    kind[flags["question"]] += QUESTION_DATA - DATA
    on_cells = {**board, **flags, "center": flags["centers"], "kind": kind}
    cells = _rows(_CELL, on_cells, np.broadcast_to(np.arange(NUM_CELLS), kind.shape))
    enemies = _rows(_ENEMY, vars(table), table.cell)
    transmissions = _rows(_TRANSMISSION, vars(table), table.cell)
    order = np.argsort(table.order, axis=-1, kind="stable")
    return [
        {
            **dict(zip(_NUMBERS, numbers[game], strict=True)),
            "exit": exits[game],
            "player": players[game],
            "owned": [number for number in range(NUM_PROGRAMS) if owned >> number & 1],
            "cells": [cell for cell in cells[game] if cell[2:] != _NOTHING],
            "enemies": [enemies[game][i] for i in order[game] if kinds[i] == ENEMY],
            "transmissions": [
                transmissions[game][i] for i in order[game] if kinds[i] == TRANSMISSION
            ],
        }
        for game, (owned, kinds) in enumerate(zip(games.owned.tolist(), table.kind, strict=True))
    ]


def _flags(plane: Plane) -> np.ndarray:
    words = np.stack(plane, axis=-1)[..., None]
    flags = (words >> np.arange(_HALF, dtype=np.uint32)) & 1 != 0
    return flags.reshape(*words.shape[:-2], NUM_CELLS)


def _rows(entry: _Entry, fields: Mapping[str, Any], cell: Any) -> list[Any]:
    """For each cell in ``cell``, the values that ``entry`` names, as a list of integers."""
    row, col = divmod(np.asarray(cell), SIZE)
    named = {**fields, "row": row, "col": col}
    return np.stack([np.asarray(named[name], int) for name in entry], axis=-1).tolist()


def load(position: Mapping[str, Any], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """Makes the state of a position, with an empty history.

    Raises:
        ValueError: a key is missing or unknown, a value is out of range, a cell is given twice, or
            its kind and program do not fit; the message is one line and names the key, value or
            cell.
    """
    return _to_state(_game(position), _checked_depth(undo_depth))


def load_all(positions: Sequence[Mapping[str, Any]], undo_depth: int = MIN_UNDO_DEPTH) -> State:
    """Makes the states of several positions as one batch; see :func:`load`."""
    undo_depth = _checked_depth(undo_depth)
    games = [_game(position) for position in positions]
    return _to_states(jax.tree.map(lambda *x: np.stack(x), *games), undo_depth)


_to_state = jax.jit(new_state, static_argnums=1)
_to_states = jax.jit(jax.vmap(new_state, (0, None)), static_argnums=1)


@lru_cache
def _blank() -> Game:
    with jax.ensure_compile_time_eval():  # It is kept, also where a position is read in a trace.
        return jax.device_get(blank_game())


def _checked_depth(undo_depth: int) -> int:
    return _in_range("undo_depth", undo_depth, 1, MAX_UNDO_DEPTH)


def _game(position: Mapping[str, Any]) -> Game:
    """Reads a position into an unpacked game of NumPy arrays."""
    names = {*_NUMBERS, "exit", "player", "owned", "cells", "enemies", "transmissions"}
    for problem, keys in (
        ("lacks", names - position.keys()),
        ("has the unknown key", set(position) - names),
    ):
        if keys:
            raise ValueError(f"the position {problem} {', '.join(sorted(map(str, keys)))}")
    owned = {_in_range("owned", number, 0, NUM_PROGRAMS - 1) for number in position["owned"]}
    numbers = {
        FIELD_OF.get(name, name): _in_range(name, position[name], *bounds)
        for name, bounds in _NUMBERS.items()
    }
    blank: Game = _blank()
    game = replace(
        blank,
        exit=_checked("exit", position["exit"], _PLACE)["cell"],
        player=build(Player, **_checked("player", position["player"], _PLAYER)),
        board=_load_board(blank.board, position["cells"]),
        entities=replace(blank.entities, **_load_entities(position)),
        owned=sum(1 << number for number in owned),
        births=len(position["transmissions"]),
        arrivals=1,
        **numbers,
    )
    return jax.tree.map(lambda x, like: np.asarray(x, like.dtype), game, blank)


def _in_range(name: str, value: Any, low: int, high: int) -> int:
    if not isinstance(value, int | np.integer):
        raise ValueError(f"{name}: {value!r} is not a whole number")
    if not low <= value <= high:
        raise ValueError(f"{name}: {value} is not in {low} to {high}")
    return int(value)


def _checked(name: str, values: Sequence[int], entry: _Entry) -> dict[str, int]:
    """Checks each value against its bounds in ``entry``; returns them by the rules' names."""
    if len(values) != len(entry):
        raise ValueError(f"{name}: {list(values)} must have {len(entry)} entries")
    fields: dict[str, int] = {}
    for value, (field, (low, high)) in zip(values, entry.items(), strict=True):
        # The common case is decided here, for speed.
        if type(value) is not int or not low <= value <= high:
            value = _in_range(f"{name} {field}", value, low, high)
        fields[field] = value
    fields["cell"] = fields.pop("row") * SIZE + fields.pop("col")
    return fields


def _load_board(blank: Board, cells: Sequence[Sequence[int]]) -> Board:
    table = {name: np.zeros(NUM_CELLS, np.int8) for name in _CELL}
    table["program"][:] = NO_PROGRAM
    given: set[int] = set()
    for values in cells:
        fields = _checked("cells", values, _CELL)
        cell = fields.pop("cell")
        if cell in given:
            raise ValueError(f"cells: the cell {list(values[:2])} is given twice")
        given.add(cell)
        if (fields["kind"] in (PROGRAM, QUESTION_PROGRAM)) != (fields["program"] != NO_PROGRAM):
            raise ValueError(
                f"cells: the cell {list(values[:2])} has kind {fields['kind']} and program "
                f"{fields['program']}: program blocks have a program, other cells have -1"
            )
        for name, value in fields.items():
            table[name][cell] = value
    kind = table["kind"]
    return replace(
        blank,
        data=_plane(np.isin(kind, (DATA, QUESTION_DATA))),
        program_blocks=_plane(np.isin(kind, (PROGRAM, QUESTION_PROGRAM))),
        question=_plane(np.isin(kind, (QUESTION_DATA, QUESTION_PROGRAM))),
        pickups=_plane(kind == PICKUP),
        exits=_plane(kind == EXIT),
        siphoned=_plane(table["siphoned"] != 0),
        centers=_plane(table["center"] != 0),
        **{name: table[name] for name in ("points", "program", "spawn_count", "credits", "energy")},
    )


def _plane(flags: np.ndarray) -> Plane:
    bits = sum(1 << int(cell) for cell in np.flatnonzero(flags))
    return Plane(bits % (1 << _HALF), bits >> _HALF)  # pyright: ignore[reportArgumentType]


def _load_entities(position: Mapping[str, Any]) -> dict[str, np.ndarray]:
    enemies, transmissions = position["enemies"], position["transmissions"]
    number = len(enemies) + len(transmissions)
    if number > MAX_ENTITIES:
        raise ValueError(f"enemies and transmissions: got {number}, but at most {MAX_ENTITIES} fit")
    entries = [
        _checked("enemies", values, _ENEMY)
        | {"kind": ENEMY, "order": (1 << ARRIVAL_SHIFT) + n, "turns": 0}
        for n, values in enumerate(enemies)
    ]
    entries += [
        _checked("transmissions", values, _TRANSMISSION) | {"kind": TRANSMISSION, "order": n}
        for n, values in enumerate(transmissions)
    ]
    table = {name: np.zeros(MAX_ENTITIES, int) for name in vars(_blank().entities)}
    for slot, fields in enumerate(entries):
        for name, value in fields.items():
            table[name][slot] = value
    return table
