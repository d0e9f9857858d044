"""Any environment as one of gymnax (Lange 2022, https://github.com/RobertTLange/gymnax)."""

from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from ppo_mask.adapters._spaces import Spaces, observation_space
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import ArrayTree

try:
    from flax import struct
    from gymnax.environments import environment, spaces
except ImportError as error:
    raise ImportError(
        f"gymnax cannot be imported ({error}); install it with pip install 'ppo-mask[gymnax]'"
    ) from error

_NO_LIMIT = (1 << 31) - 1


@struct.dataclass
class GymnaxState(environment.EnvState):
    """An environment's state, and what gymnax's base class asks of one.

    Attributes:
        time: steps taken in the episode.
        env_state: the environment's own.
        action_mask: what is allowed in it.
        terminated: the episode has ended in a terminal state.
        truncated: the environment has cut it off.
    """

    # Flax makes them of whatever jax.tree.map gives; a check of types would be wrong here.
    time: Any
    env_state: Any
    action_mask: Any
    terminated: Any
    truncated: Any


@struct.dataclass
class GymnaxParams(environment.EnvParams):
    """What gymnax lets one change.

    Attributes:
        max_steps_in_episode: where gymnax truncates an episode that the environment has not.
    """

    max_steps_in_episode: Any = _NO_LIMIT


@final
class ToGymnax(environment.Environment[GymnaxState, GymnaxParams]):
    """One environment for programs that take gymnax's.

    ``reset`` and ``step``, with its auto-reset, are gymnax's own: a step draws a new episode
    whether it is needed or not. What is allowed next says ``action_mask(state)`` of the state that
    came back; after an episode's end that is the new one's.

    Attributes:
        env: the environment.
    """

    def __init__(self, env: AbstractEnv[Any], name: str | None = None) -> None:
        """Runs nothing.

        Args:
            env: the environment.
            name: what to call it; by default its class's name.
        """
        self.env = env
        self._name = name or type(env).__name__

    @property
    def default_params(self) -> GymnaxParams:
        """No limit but the environment's own."""
        return GymnaxParams()

    @property
    def name(self) -> str:
        """The environment's."""
        return self._name

    @property
    def num_actions(self) -> int:
        """Of all actions, allowed or not."""
        return self.env.num_actions

    def reset_env(
        self, key: Key[Array, ""] | Array, params: GymnaxParams
    ) -> tuple[ArrayTree, GymnaxState]:
        """Begins an episode."""
        del params
        state, timestep = self.env.reset(_typed(key))
        return timestep.observation, _state(jnp.int32(0), state, timestep)

    def step_env(
        self,
        key: Key[Array, ""] | Array,
        state: GymnaxState,
        action: int | float | Array,
        params: GymnaxParams,
    ) -> tuple[ArrayTree, GymnaxState, Array, Array, dict[str, Array]]:
        """Takes one action, without a reset."""
        del params
        number = jnp.asarray(action, jnp.int32)
        after, timestep = self.env.step(_typed(key), state.env_state, number)
        return (
            timestep.observation,
            _state(state.time + 1, after, timestep),
            timestep.reward,
            timestep.terminated,
            timestep.info,
        )

    def action_mask(self, state: GymnaxState) -> Bool[Array, "*batch actions"]:
        """True where an action is allowed, in one state or a batch of them."""
        return state.action_mask

    def is_terminated(self, state: GymnaxState, params: GymnaxParams) -> Bool[Array, ""]:
        """Whether the episode has ended in a terminal state."""
        del params
        return state.terminated

    def is_truncated(self, state: GymnaxState, params: GymnaxParams) -> Bool[Array, ""]:
        """Whether the environment or gymnax's own limit has cut the episode off."""
        return state.truncated | (state.time >= params.max_steps_in_episode)

    def action_space(self, params: GymnaxParams | None = None) -> spaces.Discrete:
        """All actions, allowed or not."""
        del params
        return spaces.Discrete(self.num_actions)

    def observation_space(self, params: GymnaxParams | None = None) -> spaces.Space:
        """Of observations, as wide as their dtype.

        Raises:
            TypeError: observations are no tree of arrays, dicts, lists and tuples.
        """
        del params
        return observation_space(self.env, _SPACES)


_SPACES = Spaces(spaces.Box, spaces.Dict, spaces.Tuple)


def _typed(key: Array) -> Key[Array, ""]:
    """A key as the protocol wants it, whether it came as one or as its words."""
    is_key = jnp.issubdtype(key.dtype, jax.dtypes.prng_key)
    return key if is_key else jax.random.wrap_key_data(key)


def _state(time: Any, state: ArrayTree, timestep: TimeStep) -> GymnaxState:
    return GymnaxState(
        time=time,
        env_state=state,
        action_mask=timestep.action_mask,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
    )
