"""How well a policy plays: many games in one compiled program, with confidence intervals."""

import math
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int, Key

from hackmatrix.actions import ACTION_NAMES, NUM_ACTIONS
from hackmatrix.env import HackMatrix
from hackmatrix.play.agents import Agent
from hackmatrix.rules.game import NUM_STAGES
from hackmatrix.rules.state import State
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import IntScalarLike
from ppo_mask.training import evaluate

_NORMAL_95 = 1.96


@dataclass(frozen=True)
class Estimate:
    """A mean and its 95% confidence interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Evaluation:
    """The results of many games by one policy.

    Attributes:
        name: the policy's name.
        episodes: games played.
        estimates: the mean ``return``, ``stage`` (the last stage reached), ``score`` (at the end)
            and ``length`` (in actions).
        win_rate: share of the games won, with Wilson's interval, which is valid near 0 and 1, too.
        cut_off: games cut off at the limit of steps.
        stages: how many games ended in stage 1, 2, … 8.
        actions: how often a game takes each action on average, by name.
    """

    name: str
    episodes: int
    estimates: dict[str, Estimate]
    win_rate: Estimate
    cut_off: int
    stages: list[int]
    actions: dict[str, float]


def measure(agent: Agent, seed: int, episodes: int, max_steps: int = 1000) -> Evaluation:
    """Plays whole games side by side, each to its end.

    Args:
        agent: the policy that plays.
        seed: for all randomness in the games.
        episodes: how many games.
        max_steps: actions after which a game is cut off, as a policy may run in circles.

    Raises:
        ValueError: an argument is out of its range.
    """
    result = evaluate(
        agent.model,
        _Tallied(agent.env),
        jax.random.key(seed),
        episodes,
        greedy=agent.greedy,
        max_steps=max_steps,
    )
    info = result.final_info
    columns = {
        "return": result.episode_return,
        "stage": info["stage"],
        "score": info["score"],
        "length": result.episode_length,
    }
    counts = info["actions"].mean(axis=0)
    return Evaluation(
        name=agent.name,
        episodes=episodes,
        estimates={name: mean_estimate(values) for name, values in columns.items()},
        win_rate=share_estimate(int(info["won"].sum()), episodes),
        cut_off=int(result.truncated.sum()),
        stages=np.bincount(info["stage"], minlength=NUM_STAGES + 1)[1:].tolist(),
        actions={name: float(x) for name, x in zip(ACTION_NAMES, counts, strict=True)},
    )


def mean_estimate(values: np.ndarray) -> Estimate:
    """The mean of independent values; with fewer than two, the interval is infinite."""
    mean, number = float(values.mean()), len(values)
    error = math.inf
    if number > 1:
        error = _NORMAL_95 * float(values.std(ddof=1)) / math.sqrt(number)
    return Estimate(mean, mean - error, mean + error)


def share_estimate(count: int, number: int) -> Estimate:
    """A share, with the interval of Wilson (1927, JASA 22: 209-212)."""
    z2 = _NORMAL_95**2
    share = count / number
    middle = (share + z2 / (2 * number)) / (1 + z2 / number)
    spread = share * (1 - share) / number + z2 / (4 * number**2)
    half = _NORMAL_95 * math.sqrt(spread) / (1 + z2 / number)
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


class _Tallied(AbstractEnv[tuple[State, Int[Array, " actions"]]]):
    """The game; ``info`` also holds the score, and how often each action was taken so far."""

    env: HackMatrix
    num_actions: int = eqx.field(default=NUM_ACTIONS, static=True, init=False)

    def reset(self, key: Key[Array, ""]) -> tuple[Any, TimeStep]:
        state, timestep = self.env.reset(key)
        counts = jnp.zeros(self.num_actions, jnp.int32)
        return (state, counts), _with_tally(timestep, state, counts)

    def step(self, key: Key[Array, ""], state: Any, action: IntScalarLike) -> tuple[Any, TimeStep]:
        inner, counts = state
        inner, timestep = self.env.step(key, inner, action)
        counts = counts.at[action].add(1)
        return (inner, counts), _with_tally(timestep, inner, counts)


def _with_tally(timestep: TimeStep, state: State, counts: Int[Array, " actions"]) -> TimeStep:
    info = {**timestep.info, "score": state.game.player.score, "actions": counts}
    return eqx.tree_at(lambda t: t.info, timestep, info)
