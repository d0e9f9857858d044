"""Adapts an environment to gymnax (Lange 2022, https://github.com/RobertTLange/gymnax)."""

from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from ppo_mask.adapters._spaces import make_observation_space
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs.actions import Actions
from ppo_mask.jax_tools import ArrayTree

try:
    from flax import struct
    from gymnax.environments import environment, spaces
except ImportError as error:
    raise ImportError(
        f"gymnax cannot be imported ({error}); install it with pip install 'ppo-mask[gymnax]'"
    ) from error


@struct.dataclass
class GymnaxState(environment.EnvState):
    """An environment's state, with the fields that gymnax's base class reads.

    Attributes:
        time: the number of steps taken in the episode.
        env_state: the state of the environment itself.
        timestep: what the environment's last reset or step returned.
    """

    # Any, since jax.tree.map makes states whose leaves are not arrays.
    time: Any
    env_state: Any
    timestep: Any


@struct.dataclass
class GymnaxParams(environment.EnvParams):
    """The parameters that gymnax passes to every call.

    Attributes:
        max_steps_in_episode: gymnax truncates an episode after this many steps; by default never.
    """

    max_steps_in_episode: Any = (1 << 31) - 1


@final
class ToGymnax(environment.Environment[GymnaxState, GymnaxParams]):
    """An environment of this library as an environment of gymnax.

    ``reset`` and ``step`` are gymnax's own, including the auto-reset: each step computes a reset,
    whether the episode has ended or not. ``action_mask`` returns the mask of a state. At the end of
    an episode, ``step`` returns the new episode's state.

    Attributes:
        env: the environment.
    """

    def __init__(self, env: AbstractEnv[Any], name: str | None = None) -> None:
        """Wraps an environment; runs nothing.

        Args:
            env: the environment.
            name: the environment's name in gymnax; None for the name of the environment's class.

        Raises:
            ValueError: the actions are MultiDiscrete; gymnax has no space for them.
        """
        if (actions := Actions.of(env.num_actions)).has_parts:
            raise ValueError(
                f"gymnax has no space for {actions} (MultiDiscrete); ToGymnasium has one"
            )
        self.env = env
        self._name = name or type(env).__name__

    @property
    def default_params(self) -> GymnaxParams:
        """Parameters without a step limit; the environment's own limit still applies."""
        return GymnaxParams()

    @property
    def name(self) -> str:
        """The environment's name."""
        return self._name

    @property
    def num_actions(self) -> int:
        """The number of all actions, allowed or not."""
        return self.env.num_actions

    def reset_env(
        self, key: Key[Array, ""] | Array, params: GymnaxParams
    ) -> tuple[ArrayTree, GymnaxState]:
        """Starts an episode; returns the observation and the state."""
        del params
        state, timestep = self.env.reset(_wrap_key(key))
        return timestep.observation, GymnaxState(jnp.int32(0), state, timestep)

    def step_env(
        self,
        key: Key[Array, ""] | Array,
        state: GymnaxState,
        action: int | float | Array,
        params: GymnaxParams,
    ) -> tuple[ArrayTree, GymnaxState, Array, Array, dict[str, Array]]:
        """Takes one action, without a reset.

        Returns:
            The observation, the state, the reward, whether the episode terminated, and the info.
            The state says whether the episode was truncated.
        """
        del params
        number = jnp.asarray(action, jnp.int32)
        after, timestep = self.env.step(_wrap_key(key), state.env_state, number)
        state = GymnaxState(state.time + 1, after, timestep)
        reward = timestep.reward.astype(jnp.float32)  # gymnax's wrappers sum rewards in this dtype.
        return timestep.observation, state, reward, timestep.terminated, timestep.info

    def action_mask(self, state: GymnaxState) -> Bool[Array, "*batch actions"]:
        """Returns True where an action is allowed, for a state or a batch of states."""
        return state.timestep.action_mask

    def is_terminated(self, state: GymnaxState, params: GymnaxParams) -> Bool[Array, ""]:
        """Whether the episode has ended in a terminal state."""
        del params
        return state.timestep.terminated

    def is_truncated(self, state: GymnaxState, params: GymnaxParams) -> Bool[Array, ""]:
        """Whether the environment or the parameters' step limit has truncated the episode."""
        return state.timestep.truncated | (state.time >= params.max_steps_in_episode)

    def action_space(self, params: GymnaxParams | None = None) -> spaces.Discrete:
        """Returns the space of all actions, allowed or not."""
        del params
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: GymnaxParams | None = None) -> spaces.Space:
        """Returns the space of the observations, bounded only by the arrays' dtypes.

        Raises:
            TypeError: an observation is not a tree of arrays, dicts, lists and tuples.
        """
        del params
        return make_observation_space(self.env, spaces)


def _wrap_key(key: Array) -> Key[Array, ""]:
    """Converts an old-style key, an array of integers, to a typed key."""
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key if is_key else jax.random.wrap_key_data(key)
