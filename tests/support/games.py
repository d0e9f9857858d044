"""Positions written down in a few words or drawn, and what they lead to.

By the plain rules one game at a time; by the fast ones many at once, with one batch size for all,
so that a test session compiles a step of the game only once.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from hackmatrix import HackMatrix, State, positions
from hackmatrix.play.agents import Agent
from hackmatrix.play.replay import Session
from hackmatrix.rules import plain
from hackmatrix.rules.draws import Draws
from hackmatrix.rules.programs import NUM_PROGRAMS, Program
from hackmatrix.task import EVALUATE_METRICS, METRICS
from ppo_mask.envs import TimeStep
from ppo_mask.training import EvaluationResult, evaluate

ENV = HackMatrix()
BATCH = 128
UP, DOWN, LEFT, RIGHT, SIPHON = range(5)
VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)


@jax.jit
@jax.vmap
def step(
    key: jax.Array, state: State, action: jax.Array
) -> tuple[State, TimeStep, jax.Array, jax.Array]:
    """A step of each game, which is a new one where it ended.

    Returns:
        The next states, the time steps, what is seen of the next states; and the words that the
        draws of the step are made of, and those of the new game.
    """
    keys = jax.random.split(key)
    timestep, following = ENV.step_and_reset(*keys, state, action)
    words = jax.vmap(lambda key: Draws(key).words)(keys)
    return following.state, timestep, following.observation, words


def run(program: Program) -> int:
    """The action that runs a program."""
    return 5 + program


def seed_to_play() -> int:
    """A seed to play with: the player begins at the bottom left, where it can go up and right, and
    has nothing to siphon with."""
    wanted = [True, False, False, True, False]
    return next(s for s in range(1000) if Session(ENV, s).mask[: SIPHON + 1].tolist() == wanted)


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


class Outcome(NamedTuple):
    """One of the ends that play by the plain rules came to; ``result`` is that of the last step."""

    position: dict[str, Any]
    legal: set[int]
    result: plain.Result
    count: int

    @property
    def components(self) -> dict[str, float]:
        """The reward's components that are not 0."""
        return {name: round(value, 5) for name, value in self.result.reward.items() if value}


def outcomes(start: dict[str, Any], *actions: int, tries: int = 60) -> list[Outcome]:
    """What the actions lead to: each different end once, the most frequent first."""
    ends: dict[str, Outcome] = {}
    for seed in range(tries):
        game, chance, result = plain.load(start), plain.Dice(seed), plain.Result()
        for action in actions:
            result = plain.step(game, action, chance)
        end = plain.dump(game)
        known = ends.get(str(end))
        ends[str(end)] = Outcome(end, plain.legal(game), result, known.count + 1 if known else 1)
    return sorted(ends.values(), key=lambda end: -end.count)


def the_outcome(start: dict[str, Any], *actions: int) -> Outcome:
    """The one end that the actions lead to; an error where chance has a part in it."""
    (only,) = outcomes(start, *actions, tries=8)
    return only


def random_positions(rng: np.random.Generator, number: int) -> Iterator[dict[str, Any]]:
    """Positions that play may take long to bring about: crowds, shared cells, walled-in players."""
    for _ in range(number):
        order = [divmod(int(place), 6) for place in rng.permutation(36)]
        walls, free = order[: rng.integers(16)], order[16:]
        player = free[0] if rng.random() < 0.9 else order[0]
        others = [place for place in order if place != player]
        most = 36 if rng.random() < 0.05 else rng.integers(9)
        stand = [place for place in others if place not in walls][:most]
        crowd = [place for place in others if place not in stand][: rng.integers(1, 12)] or others
        enemies = []
        for number in range(rng.integers(12)):
            among = stand if stand and rng.random() < 0.15 else crowd
            place = player if rng.random() < 0.02 else among[rng.integers(len(among))]
            type = GLITCH if place in walls and rng.random() < 0.8 else rng.integers(4)
            flags = [number >= 6 or rng.random() < 0.2, *rng.integers(2, size=2)]
            enemies.append([type, *place, rng.integers(1, 4), rng.random() < 0.1, *flags])
        beside = [place for place in plain.neighbors(player) if place in free]
        exit = beside[0] if beside and rng.random() < 0.3 else free[1]
        kinds = {place: 5 * (rng.random() < 0.1) for place in free} | {exit: 6}
        kinds |= {place: rng.integers(1, 5) for place in walls}
        drawn = position(
            player,
            hp=rng.integers(1, 4),
            siphons=rng.integers(3),
            score=5,
            attack=rng.integers(1, 3),
            enemies=enemies,
            transmissions=[
                [*place, rng.integers(1, 4), rng.integers(4), *rng.integers(2, size=2)]
                for place in stand
            ],
            owned=np.flatnonzero(rng.random(NUM_PROGRAMS) < 0.7).tolist(),
            stage=min(rng.integers(1, 12), 8),  # In the last one, a game can be won.
            show=rng.random() < 0.2,
            calm=rng.random() < 0.2,
            step=rng.random() < 0.2,
            atk_uses=rng.integers(4),
            interval=rng.integers(4, 13),
            next_task=rng.integers(3, 7),
            pending=rng.integers(5) * rng.integers(2),
        )
        cells = [[*place, *_random_content(rng, kind)] for place, kind in kinds.items()]
        # Numbers of Python's, and lists.
        yield json.loads(json.dumps(drawn | {"exit": exit, "cells": cells}, default=int))


def _random_content(rng: np.random.Generator, kind: int) -> list[Any]:
    """What is on a cell of a kind: of few values, so that places are often worth the same."""
    holds_data, holds_program = kind in (1, 3), kind in (2, 4)
    return [
        kind,
        holds_data * rng.integers(1, 4),
        rng.integers(NUM_PROGRAMS) if holds_program else -1,
        (holds_data or holds_program) * rng.integers(10),
        *(kind != 6) * rng.permutation([rng.integers(4), 0]),
        kind not in (3, 4) and rng.random() < 0.15,
        rng.random() < 0.1,
    ]


def batch(starts: Sequence[dict[str, Any] | State]) -> State:
    """The states of positions, or some states, filled up to the one batch size."""
    filled = [starts[i % len(starts)] for i in range(BATCH)]
    if isinstance(starts[0], dict):
        return positions.load_all(filled)
    return jax.tree.map(lambda *x: np.stack(x), *jax.device_get(filled))


def play(starts: Sequence[dict[str, Any]] | State, *actions: int) -> tuple[State, TimeStep]:
    """What the fast game makes of some positions, or of a batch of states."""
    states = starts if isinstance(starts, State) else batch(starts)
    timestep = None
    for number, action in enumerate(actions):
        keys = jax.random.split(jax.random.key(number), BATCH)
        states, timestep, *_ = step(keys, states, np.full(BATCH, action, np.int32))
    return jax.device_get((states, timestep))


def evaluated(agent: Agent, seed: int, episodes: int) -> EvaluationResult:
    """Plays whole games, as ``hackmatrix evaluate`` does."""
    return evaluate(
        agent.model,
        agent.env,
        jax.random.key(seed),
        episodes,
        greedy=agent.greedy,
        max_steps=1000,
        metrics={**METRICS, **EVALUATE_METRICS},
    )
