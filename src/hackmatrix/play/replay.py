"""Games as frames to draw.

A :class:`Frame` holds what is shown before an action: the position, the allowed actions, the
policy's probabilities and value, and the reward of the previous action. A :class:`Session` makes
the frames of a game while it is played, :func:`watch` lets a policy play a game, and a
:class:`Replay` is a whole game.
"""

import math
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, Key

from hackmatrix.env import HackMatrix
from hackmatrix.play.agents import Agent
from hackmatrix.render.page import Replay
from hackmatrix.render.scene import scene
from hackmatrix.rules.rewards import COMPONENTS
from ppo_mask.envs.drawing import Decision, Frame
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import Model
from ppo_mask.search import Search, advance

__all__ = ["Decision", "Frame", "Replay", "Session", "decide", "record", "watch"]


class Session:
    """A game that is played one action at a time.

    Attributes:
        state: the current position.
        observation: the current observation.
        mask: the actions allowed now.
    """

    def __init__(
        self, env: HackMatrix, seed: int, *, reveal: bool = False, max_steps: int | None = None
    ) -> None:
        """Begins a game.

        Args:
            env: the game.
            seed: for all randomness in the game.
            reveal: see :func:`hackmatrix.render.scene.scene`.
            max_steps: actions after which the game is cut off.
        """
        self._env = env
        self._reveal = reveal
        self._max_steps = max_steps
        reset_key, self._step_key, self._action_key = jax.random.split(jax.random.key(seed), 3)
        self.state, timestep = env.reset(reset_key)
        self._step = 0
        self._action: int | None = None
        self._rewards: dict[str, float] = {}
        self._return = 0.0
        self._end = ""
        self.observation, self.mask = timestep.observation, timestep.action_mask

    @property
    def over(self) -> bool:
        """Whether the game has ended."""
        return bool(self._end)

    @property
    def action_key(self) -> Key[Array, ""]:
        """The key to sample the next action with."""
        return jax.random.fold_in(self._action_key, self._step)

    def act(self, action: int) -> None:
        """Takes an action."""
        key = jax.random.fold_in(self._step_key, self._step)
        self.state, timestep = self._env.step(key, self.state, action)
        info = jax.device_get(timestep.info)
        self._step += 1
        self._action = action
        self._rewards = {name: float(info[f"reward/{name}"]) for name in COMPONENTS}
        self._return += sum(self._rewards.values())
        self.observation, self.mask = timestep.observation, timestep.action_mask
        ends = {"won": "won", "died": "died", "invalid_action": "ended by an invalid action"}
        self._end = next((word for name, word in ends.items() if info[name]), "")
        if not self._end and self._max_steps is not None and self._step >= self._max_steps:
            self._end = "cut off"

    def frame(self, decision: Decision | None = None) -> Frame:
        """The current frame."""
        allowed = () if self.over else tuple(np.flatnonzero(self.mask).tolist())
        return Frame(
            step=self._step,
            scene=scene(self.state, reveal=self._reveal),
            allowed=allowed,
            action=self._action,
            rewards=self._rewards,
            return_=self._return,
            decision=None if self.over else decision,
            end=self._end,
        )


def watch(
    agent: Agent, seed: int, *, reveal: bool = False, max_steps: int | None = None
) -> Iterator[Frame]:
    """Plays a game with a policy and yields its frames, beginning before the first action.

    Args:
        agent: the policy that plays.
        seed: for all randomness in the game, and for sampled actions.
        reveal: see :func:`hackmatrix.render.scene.scene`.
        max_steps: actions after which the game is cut off, as a policy may run in circles.
    """
    game = Session(agent.env, seed, reveal=reveal, max_steps=max_steps)
    hidden = agent.model.initial_hidden()
    while not game.over:
        decision, hidden = decide(agent, game, hidden)
        yield game.frame(decision)
        game.act(decision.action)
    yield game.frame()


def record(
    agent: Agent, seed: int, *, reveal: bool = False, max_steps: int | None = 1000
) -> Replay:
    """Records a whole game played by a policy; see :func:`watch`."""
    frames = list(watch(agent, seed, reveal=reveal, max_steps=max_steps))
    return Replay(agent.name, seed, frames)


def decide(agent: Agent, game: Session, hidden: ArrayTree) -> tuple[Decision, ArrayTree]:
    """A policy's decision in a game, and the hidden state for the next step."""
    *chosen, hidden = _decide(
        (agent.search, agent.model, agent.env),
        agent.greedy,
        game.action_key,
        game.state,
        game.observation,
        game.mask,
        hidden,
    )
    action, probabilities, value = jax.device_get(chosen)
    known = float(value) if math.isfinite(value) else None
    return Decision(int(action), tuple(probabilities.tolist()), known), hidden


@eqx.filter_jit
def _decide(
    player: tuple[Search | None, Model, HackMatrix], greedy: bool, key: Key[Array, ""], *seen: Any
) -> tuple[Int[Array, ""], Float[Array, " actions"], Float[Array, ""], ArrayTree]:
    action_key, search_key = (key, None) if player[0] is None else jax.random.split(key)
    distribution, value, hidden = advance(*player, search_key, *seen)
    action = distribution.mode() if greedy else distribution.sample(action_key)
    return action, distribution.probs, value, hidden
