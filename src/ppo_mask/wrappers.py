"""Environments made from environments."""

from typing import TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from ppo_mask.env import AbstractEnv, TimeStep

State = TypeVar("State")


class TimeLimit(AbstractEnv[tuple[State, Int[Array, ""]]]):
    """An environment whose episodes are truncated after ``max_steps`` steps.

    Attributes:
        env: the environment.
        max_steps: the most steps of an episode.
        num_actions: the environment's.
    """

    env: AbstractEnv[State]
    max_steps: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(self, env: AbstractEnv[State], max_steps: int):
        if max_steps < 1:
            raise ValueError(f"max_steps must be at least 1, got {max_steps}")
        self.env = env
        self.max_steps = max_steps
        self.num_actions = env.num_actions

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[State, Int[Array, ""]], TimeStep]:
        """Starts an episode, of 0 steps so far."""
        state, timestep = self.env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, key: Key[Array, ""], state: tuple[State, Int[Array, ""]], action: Int[Array, ""]
    ) -> tuple[tuple[State, Int[Array, ""]], TimeStep]:
        """Takes one action, and truncates the episode if it is the last and did not end it."""
        inner, steps = state
        inner, timestep = self.env.step(key, inner, action)
        cut = (steps + 1 >= self.max_steps) & ~timestep.terminated
        truncated = timestep.truncated | cut
        timestep = TimeStep(
            observation=timestep.observation,
            action_mask=timestep.action_mask | truncated,
            reward=timestep.reward,
            terminated=timestep.terminated,
            truncated=truncated,
            info=timestep.info,
        )
        return (inner, steps + 1), timestep
