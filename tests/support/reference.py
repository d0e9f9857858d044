"""The rules once more, slowly: on positions as plain values, one enemy after another.

Written from the rules alone and for reading; nothing is shared with the game but its positions and
the table of programs.
"""

from collections import deque
from collections.abc import Iterator
from typing import Any

from hackmatrix.rules.programs import CARDS, Program

Position = dict[str, Any]
Cell = tuple[int, int]

DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1))
BOARD = [(row, col) for row in range(6) for col in range(6)]
VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
FULL_HP = (2, 3, 2, 2)
BLOCK_KINDS = (1, 2, 3, 4)


def neighbors(cell: Cell) -> list[Cell]:
    """The cells next to a cell, in the order in which directions are tried."""
    row, col = cell
    return [n for dr, dc in DIRECTIONS if (n := (row + dr, col + dc)) in BOARD]


def around(cell: Cell) -> list[Cell]:
    """The up to 8 cells around a cell."""
    row, col = cell
    return [c for c in BOARD if c != cell and abs(c[0] - row) <= 1 and abs(c[1] - col) <= 1]


def manhattan(a: Cell, b: Cell) -> int:
    return abs(a[0] - b[0]) + abs(a[1] - b[1])


def blocks(position: Position) -> set[Cell]:
    return {(cell[0], cell[1]) for cell in position["cells"] if cell[2] in BLOCK_KINDS}


def legal(position: Position, undoable: bool = False) -> set[int]:
    """The valid actions; ``undoable``: the history is not empty."""
    row, col, hp, credits, energy, data_siphons, _, _ = position["player"]
    here, walls = (row, col), blocks(position)
    enemies = {(enemy[1], enemy[2]) for enemy in position["enemies"]}
    types = {enemy[0] for enemy in position["enemies"]}
    transmissions = {(each[0], each[1]) for each in position["transmissions"]}
    siphoned = {(cell[0], cell[1]) for cell in position["cells"] if cell[8]}
    useful = {
        Program.PUSH: enemies,
        Program.PULL: enemies,
        Program.CRASH: set(around(here)) & (walls | enemies | transmissions),
        Program.WARP: enemies | transmissions,
        Program.POLY: enemies,
        Program.DEBUG: enemies & walls,
        Program.ROW: any(enemy[0] == row for enemy in enemies),
        Program.COL: any(enemy[1] == col for enemy in enemies),
        Program.UNDO: undoable,
        Program.EXCH: credits >= 4,
        Program.SHOW: not position["show"],
        Program.RESET: hp < 3,
        Program.CALM: not position["calm"],
        Program.D_BOM: DAEMON in types,
        Program.DELAY: transmissions,
        Program.ANTI_V: VIRUS in types,
        Program.SCORE: position["stage"] < 8,
        Program.REDUC: any(
            cell[2] in BLOCK_KINDS and not cell[8] and cell[5] > 0 for cell in position["cells"]
        ),
        Program.ATK_PLUS: position["atk_uses"] < 2,
        Program.HACK: siphoned,
    }
    allowed = {
        action
        for action, (dr, dc) in enumerate(DIRECTIONS)
        if (there := (row + dr, col + dc)) in BOARD and (there not in walls or there in enemies)
    }
    if data_siphons > 0:
        allowed.add(4)
    for program in Program:
        card = CARDS[program]
        affordable = credits >= card.credits and energy >= card.energy
        if program in position["owned"] and affordable and useful.get(program, True):
            allowed.add(5 + program)
    return allowed


def _distances(goal: Cell, free: set[Cell]) -> dict[Cell, int]:
    """Steps to the goal over free cells, of which the goal must be one."""
    found = {goal: 0} if goal in free else {}
    queue = deque(found)
    while queue:
        cell = queue.popleft()
        for n in neighbors(cell):
            if n in free and n not in found:
                found[n] = found[cell] + 1
                queue.append(n)
    return found


def _first_step(cell: Cell, player: Cell, free: set[Cell]) -> Cell | None:
    """The first direction that starts a shortest path over free cells."""
    far = _distances(player, free)
    reachable = [n for n in neighbors(cell) if n in far]
    return min(reachable, key=lambda n: far[n], default=None)  # min keeps the first of equals


def move(type: int, cell: Cell, player: Cell, walls: set[Cell], occupied: set[Cell]) -> Cell:
    """Where an enemy that acts and does not attack goes; ``occupied`` by anybody but itself."""
    open_cells = set(BOARD) if type == GLITCH else set(BOARD) - walls
    if cell != player:
        goal = {player} & open_cells
        step = _first_step(cell, player, (open_cells - occupied) | goal)
        if step is not None:
            return step
        step = _first_step(cell, player, open_cells)
        if step is not None and step not in occupied:
            return step
    options = [n for n in neighbors(cell) if n in open_cells and n not in occupied]
    return min(options, key=lambda n: manhattan(n, player), default=cell)


def enemy_turns(position: Position) -> set[tuple[Any, ...]]:
    """Everything that an enemy turn without spawns can lead to, as :func:`outcome` has it."""
    player = tuple(position["player"][:2])
    walls = blocks(position)
    enemies = [list(enemy) for enemy in position["enemies"]]
    transmissions = [list(each) for each in position["transmissions"]]
    for row, col, turns, type, siphon, task in transmissions:
        if turns <= 1:
            enemies.append([type, row, col, FULL_HP[type], 1, 0, siphon, task])
    left = [[row, col, turns - 1, *rest] for row, col, turns, *rest in transmissions if turns > 1]
    standing = {(each[0], each[1]) for each in left}
    types = [enemy[0] for enemy in enemies]
    awake = frozenset(i for i, e in enumerate(enemies) if not e[4] and not e[5])
    viruses = frozenset(i for i in awake if types[i] == VIRUS)
    # A dormant virus is alive too, but nobody acts in a second step then.

    def act(i: int, cells: tuple[Cell, ...], hurt: frozenset[int]) -> tuple[Any, frozenset[int]]:
        if cells[i] in neighbors(player):
            return cells, hurt | {i}
        others = {cell for j, cell in enumerate(cells) if j != i}
        new = move(types[i], cells[i], player, walls, others | standing)
        return (*cells[:i], new, *cells[i + 1 :]), hurt

    def step(nodes: set[Any], actors: frozenset[int]) -> set[Any]:
        """All ends of one step, from all its beginnings, over all orders of the actors."""
        ends, seen = set(), set()
        todo = [(cells, hurt, actors - hurt) for cells, hurt in nodes]
        while todo:
            node = todo.pop()
            if node in seen:
                continue
            seen.add(node)
            cells, hurt, waiting = node
            if not waiting:
                ends.add((cells, hurt))
            todo += [(*act(i, cells, hurt), waiting - {i}) for i in waiting]
        return ends

    begin = {(tuple((e[1], e[2]) for e in enemies), frozenset())}
    ends = step(step(begin, awake), viruses)
    turn = position["turn"] + 1
    return {
        (
            turn,
            max(position["player"][2] - len(hurt), 0),
            tuple(
                (e[0], *cell, e[3], max(e[4] - 1, 0), 0, e[6], e[7])
                for e, cell in zip(enemies, cells, strict=True)
            ),
            tuple(map(tuple, left)),
        )
        for cells, hurt in ends
    }


def outcome(position: Position) -> tuple[Any, ...]:
    """What an enemy turn changes: turn, hp, enemies and transmissions."""
    return (
        position["turn"],
        position["player"][2],
        tuple(map(tuple, position["enemies"])),
        tuple(map(tuple, position["transmissions"])),
    )


def random_positions(rng: Any, number: int) -> Iterator[Position]:
    """Positions that play may take long to bring about: crowds, shared cells, walled-in players."""
    for _ in range(number):
        order = [divmod(int(cell), 6) for cell in rng.permutation(36)]
        walls, free = order[: rng.integers(0, 16)], order[16:]
        player = free[0] if rng.random() < 0.9 else order[0]
        others = [cell for cell in order if cell != player]
        ground = [cell for cell in others if cell not in walls]
        stand = ground[: rng.integers(0, 9)]
        places = [cell for cell in others if cell not in stand]
        crowd = places[: rng.integers(1, 12)]
        enemies = []
        for number in range(rng.integers(1, 12)):
            type = int(rng.integers(4))
            cell = crowd[rng.integers(len(crowd))]
            if type != GLITCH and cell in walls and rng.random() < 0.8:
                type = GLITCH
            asleep = number >= 4 or rng.random() < 0.2
            hp = int(rng.integers(1, FULL_HP[type] + 1))
            enemies.append([type, *cell, hp, 0, int(asleep), int(rng.integers(2)), 0])
        if rng.random() < 0.1:
            enemies[0][1:3] = player
        yield {
            "stage": 3,
            "turn": 5,
            "exit": [5, 5],
            "show": 0,
            "calm": 1,
            "step": 0,
            "atk_uses": 0,
            "interval": 10,
            "next_task": 10,
            "pending": 0,
            "owned": [int(Program.WAIT)],
            "player": [*player, int(rng.integers(1, 4)), 3, 9, 1, 5, 1],
            "cells": [[*cell, 1, 3, -1, 3, 0, 0, 0, 0] for cell in walls],
            "enemies": enemies,
            "transmissions": [
                [*cell, int(rng.integers(1, 4)), int(rng.integers(4)), 0, 1] for cell in stand
            ],
        }
