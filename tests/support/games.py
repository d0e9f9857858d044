"""Positions written down in a few words, played many times at once.

One batch size for all, so that a test session compiles a step of the game only once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from hackmatrix import HackMatrix, State, positions
from hackmatrix.play.replay import Session
from hackmatrix.rules.programs import NUM_PROGRAMS, Program
from hackmatrix.rules.rewards import COMPONENTS
from ppo_mask.envs import TimeStep

ENV = HackMatrix()
BATCH = 512
UP, DOWN, LEFT, RIGHT, SIPHON = range(5)

step = jax.jit(jax.vmap(ENV.step))
reset = jax.jit(jax.vmap(ENV.reset))
games_of = jax.jit(jax.vmap(lambda state: state.game))


def run(program: Program) -> int:
    """The action that runs a program."""
    return 5 + program


def seed_to_play() -> int:
    """A seed to play with: the player begins at the bottom left, where it can go up and right, and
    has nothing to siphon with."""
    wanted = [True, False, False, True, False]
    return next(s for s in range(1000) if Session(ENV, s).mask[: SIPHON + 1].tolist() == wanted)


class Outcome(NamedTuple):
    """One of the ends that play came to; ``timestep`` is that of the last action."""

    position: dict[str, Any]
    timestep: TimeStep
    count: int

    @property
    def components(self) -> dict[str, float]:
        """The reward's components that are not 0."""
        info = self.timestep.info
        values = {name: float(info[f"reward/{name}"]) for name in COMPONENTS}
        return {name: round(value, 5) for name, value in values.items() if value}


def position(
    player: tuple[int, int] = (2, 2),
    *,
    hp: int = 3,
    credits: int = 20,
    energy: int = 20,
    siphons: int = 1,
    score: int = 0,
    attack: int = 1,
    cells: Sequence[Sequence[int]] = (),
    blocks: Sequence[tuple[int, int]] = (),
    enemies: Sequence[Sequence[int]] = (),
    transmissions: Sequence[Sequence[int]] = (),
    **numbers: Any,
) -> dict[str, Any]:
    """A position with every program owned, no scheduled spawn near, and the exit at the top right.

    Args:
        player: row and column; the keyword arguments up to ``attack`` are the player's as well.
        cells: as in a position.
        blocks: cells with a data block of one point and no spawn.
        enemies: (type, row, col) with 2 hp, or as in a position.
        transmissions: (row, col) of viruses that are far off, or as in a position.
        numbers: other entries of the position.
    """
    walls = [[*cell, 1, 1, -1, 0, 0, 0, 0, 0] for cell in blocks]
    exit = numbers.get("exit", [5, 5])
    return {
        "stage": 1,
        "turn": 3,
        "exit": exit,
        "show": 0,
        "calm": 0,
        "step": 0,
        "atk_uses": 0,
        "interval": 12,
        "next_task": 90,
        "pending": 0,
        "owned": list(range(NUM_PROGRAMS)),
        "player": [*player, hp, credits, energy, siphons, score, attack],
        "cells": sorted([*map(list, cells), *walls, [*exit, 6, 0, -1, 0, 0, 0, 0, 0]]),
        "enemies": [[*e, *(2, 0, 0, 0, 0)[len(e) - 3 :]] for e in enemies],
        "transmissions": [[*t, *(50, 0, 0, 0)[len(t) - 2 :]] for t in transmissions],
        **numbers,
    }


def stacked(states: Sequence[State]) -> State:
    """A batch of states, filled up to the one batch size."""
    filled = [states[i % len(states)] for i in range(BATCH)]
    return jax.tree.map(lambda *x: np.stack(x), *jax.device_get(filled))


def outcomes(start: dict[str, Any] | State, *actions: int, seed: int = 0) -> list[Outcome]:
    """What the actions led to, over many keys: each different end once, the most frequent first."""
    state = positions.load(start) if isinstance(start, dict) else start
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (BATCH, *x.shape)), state)
    for number, action in enumerate(actions):
        keys = jax.random.split(jax.random.key(1000 * seed + number), BATCH)
        states, timesteps = step(keys, states, jnp.full(BATCH, action, jnp.int32))
    states, timesteps = jax.device_get((states, timesteps))
    _, rows, counts = np.unique(_rows(states), axis=0, return_index=True, return_counts=True)
    ends = sorted(zip(counts.tolist(), rows.tolist(), strict=True), reverse=True)
    found = _dumped(states, [row for _, row in ends])
    return [
        Outcome(position, member(timesteps, row), count)
        for position, (count, row) in zip(found, ends, strict=True)
    ]


def _dumped(states: State, rows: list[int]) -> list[dict[str, Any]]:
    """The positions of some rows of a batch; few sizes, so that little is compiled."""
    filled = np.resize(rows, 16 if len(rows) <= 16 else BATCH)
    return positions.dump_all(member(states, filled))[: len(rows)]


def member(batch: Any, row: int | np.ndarray) -> Any:
    """One row, or some, of a batch of states or timesteps."""
    return jax.tree.map(lambda x: x[row], batch)


def the_outcome(start: dict[str, Any] | State, *actions: int) -> Outcome:
    """The one end that the actions lead to; an error where chance has a part in it."""
    (only,) = outcomes(start, *actions)
    return only


def _rows(states: State) -> np.ndarray:
    """One row a state, equal for equal positions: entities in list order, free slots empty."""
    games = jax.device_get(games_of(states))
    table = games.entities
    rank = np.where(table.kind == 0, 1 << 40, table.order.astype(np.int64))
    rank = rank + (table.kind == 1) * (1 << 33)
    order = np.argsort(rank, axis=1, kind="stable")
    alive = np.take_along_axis(table.kind, order, axis=1) > 0
    entities = [
        np.where(alive, np.take_along_axis(leaf, order, axis=1), 0)
        for name, leaf in vars(table).items()
        if name != "order"
    ]
    others = jax.tree.leaves(
        [
            leaf
            for name, leaf in vars(games).items()
            if name not in ("entities", "births", "arrivals", "steps", "undo_newest")
        ]
    )
    return np.concatenate(
        [np.reshape(leaf, (len(rank), -1)).astype(np.int64) for leaf in [*entities, *others]], 1
    )
