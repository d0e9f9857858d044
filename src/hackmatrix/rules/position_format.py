"""What a position as plain JSON values is made of, and how a state is written as one.

The format itself is described in :mod:`hackmatrix.positions`, which reads it, too.
"""

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from hackmatrix.rules.entities import ENEMY, NUM_TYPES, TRANSMISSION
from hackmatrix.rules.game import MAX_HP, NO_PROGRAM, NUM_STAGES, Board, Game
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane
from hackmatrix.rules.programs import NUM_PROGRAMS
from hackmatrix.rules.state import Kept, State
from ppo_mask.jax_tools import number_settings

EMPTY, DATA, PROGRAM, QUESTION_DATA, QUESTION_PROGRAM, PICKUP, EXIT = range(7)

# Of each entry the names of its values, in their order, with the smallest and the largest.
_LARGE = (1 << 15) - 1
_FLAG, _INDEX, _AMOUNT = (0, 1), (0, SIZE - 1), (0, _LARGE)
NUMBERS = {
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
EXIT_ENTRY = {"row": _INDEX, "col": _INDEX}
PLAYER_ENTRY = {
    "row": _INDEX,
    "col": _INDEX,
    "hp": (0, MAX_HP),
    "credits": _AMOUNT,
    "energy": _AMOUNT,
    "data_siphons": _AMOUNT,
    "score": _AMOUNT,
    "attack": (1, _LARGE),
}
CELL_ENTRY = {
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
ENEMY_ENTRY = {
    "type": _TYPE,
    "row": _INDEX,
    "col": _INDEX,
    "hp": (1, 3),
    "disabled": (0, 9),
    "stunned": _FLAG,
    **_ORIGIN,
}
TRANSMISSION_ENTRY = {"row": _INDEX, "col": _INDEX, "turns": (1, _LARGE), "type": _TYPE, **_ORIGIN}
FIELD_OF = {"step": "step_pending"}
"""The game's field for each number of a position that has another name there."""


def dump(state: State) -> dict[str, Any]:
    """The position of a state, of numbers and lists only."""
    parts = jax.device_get(_take_apart(state.kept))
    (position,) = _positions(*jax.tree.map(lambda x: x[None], parts))
    return position


def dump_all(states: State) -> list[dict[str, Any]]:
    """The positions of a batch of states; see :func:`dump`."""
    return _positions(*jax.device_get(_take_all_apart(states.kept)))


@jax.jit
@number_settings()
def _take_apart(kept: Kept) -> tuple[Game, Mapping[str, Any]]:
    """The game, and the sets of cells of its board as flags [cells]."""
    game = kept.game
    planes = {name: x for name, x in vars(game.board).items() if isinstance(x, Plane)}
    return game, {name: plane.flags() for name, plane in planes.items()}


_take_all_apart = jax.jit(jax.vmap(_take_apart))


def _positions(games: Game, flags: Mapping[str, np.ndarray]) -> list[dict[str, Any]]:
    """The positions of games, of NumPy arrays with one leading axis, from what was taken apart."""
    player, table = games.player, games.entities
    numbers = _table(*(getattr(games, FIELD_OF.get(name, name)) for name in NUMBERS))
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
                **dict(zip(NUMBERS, numbers[game], strict=True)),
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


def _in_order(members: np.ndarray, order: np.ndarray) -> list[int]:
    return sorted(np.flatnonzero(members).tolist(), key=order.__getitem__)
