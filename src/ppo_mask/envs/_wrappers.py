"""Wrappers of environments."""

import dataclasses
from typing import Any, SupportsIndex, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key

from ppo_mask.envs._env import AbstractEnv, Next, TimeStep, declared_info
from ppo_mask.envs._host import host_env_in, require_host_support
from ppo_mask.envs.actions import Action, ActionLike, Actions, NumActions
from ppo_mask.envs.drawing import Picture, draw
from ppo_mask.errors import check_at_least

State = TypeVar("State")


class TimeLimit(AbstractEnv[tuple[State, Int[Array, ""]]]):
    """An environment whose episodes are truncated after ``max_steps`` steps.

    Attributes:
        env: the environment.
        max_steps: the maximum number of steps of an episode.
        num_actions: the environment's number of actions.

    Raises:
        ValueError: ``max_steps`` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> env = pm.TimeLimit(pm.envs.probes.MaskedLocks(length=8), max_steps=1)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> allowed = timestep.action_mask.argmax().astype(jnp.int32)
        >>> state, timestep = env.step(jax.random.key(1), state, allowed)
        >>> print(timestep.terminated, timestep.truncated)
        False True
    """

    env: AbstractEnv[State]
    max_steps: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)

    def __init__(self, env: AbstractEnv[State], max_steps: SupportsIndex):
        max_steps = int(max_steps)
        check_at_least(1, max_steps=max_steps)
        self.env = env
        self.max_steps = max_steps
        self.num_actions = env.num_actions

    @property
    def observation_info(self) -> Any:
        """That of the environment inside."""
        return declared_info(self.env)

    @property
    def observation_sets(self) -> Any:
        """That of the environment inside, if it has one."""
        return getattr(self.env, "observation_sets", None)

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[State, Int[Array, ""]], TimeStep]:
        """Starts an episode and its count of steps."""
        state, timestep = self.env.reset(key)
        return (state, jnp.zeros((), jnp.int32)), timestep

    def step(
        self, key: Key[Array, ""], state: tuple[State, Int[Array, ""]], action: ActionLike
    ) -> tuple[tuple[State, Int[Array, ""]], TimeStep]:
        """Takes one action, and truncates the episode at the limit unless the step ends it."""
        inner, steps = state
        inner, timestep = self.env.step(key, inner, Actions.of(self.num_actions).convert(action))
        cut = (steps + 1 >= self.max_steps) & ~timestep.terminated
        timestep = dataclasses.replace(timestep, truncated=timestep.truncated | cut)
        return (inner, steps + 1), timestep

    def part_mask(
        self, state: tuple[State, Int[Array, ""]], prefix: Int[Array, " k"], k: int
    ) -> Bool[Array, " choices"] | None:
        """That of the environment inside."""
        return self.env.part_mask(state[0], prefix, k)

    def imagine(
        self, key: Key[Array, ""], state: tuple[State, Int[Array, ""]]
    ) -> Next[tuple[State, Int[Array, ""]]] | None:
        """That of the environment inside."""
        if (drawn := self.env.imagine(key, state[0])) is None:
            return None
        return Next((drawn.state, state[1]), drawn.observation, drawn.action_mask)

    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: tuple[State, Int[Array, ""]],
        action: Action,
        cut: Bool[Array, ""] | bool = False,
    ) -> tuple[TimeStep, Next[tuple[State, Int[Array, ""]]]]:
        """See :class:`AbstractEnv`, and ``AbstractHostEnv`` for ``cut``."""
        if host_env_in(self.env) is None:
            return super().step_and_reset(step_key, reset_key, state, action)
        require_host_support(self.env)
        inner, steps = state
        cut = cut | (steps + 1 >= self.max_steps)
        env: Any = self.env
        final, following = env.step_and_reset(step_key, reset_key, inner, action, cut)
        steps = jnp.where(final.terminated | final.truncated, 0, steps + 1)
        return final, dataclasses.replace(following, state=(following.state, steps))

    def draw(self, state: tuple[State, Int[Array, ""]], timestep: TimeStep) -> Picture | None:
        """Draws the environment's state, if the environment can."""
        return draw(self.env, state[0], timestep)
