"""Environments of jumanji: puzzles, packing and routing, most of them with masks.

Bonnet et al. 2024, arXiv:2306.09884; https://github.com/instadeepai/jumanji
"""

import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ppo_mask.adapters._shared import Foreign, lawful, library, settled, told
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import ArrayTree, IntScalarLike


@final
class JumanjiEnv(AbstractEnv[ArrayTree]):
    """An environment of jumanji, such as ``JumanjiEnv("Snake-v1")``.

    The mask is the observation's ``action_mask`` where there is one. Where an action has several
    parts, each of their combinations is an action here, the last part counting fastest; their mask
    must then be one of the combinations. An episode whose last discount is 0 has terminated, any
    other was truncated. ``info`` is jumanji's extras.

    jumanji keeps a random key in its state. Here it is replaced by ``step``'s own.

    Attributes:
        num_actions: the environment's; with several parts, the number of combinations.
        parts: how many values each part of an action has; empty where an action is one number.
    """

    num_actions: int = eqx.field(static=True)
    parts: tuple[int, ...] = eqx.field(static=True)
    _held: Foreign = eqx.field(static=True)

    def __init__(self, environment: Any):
        """Takes an environment.

        Args:
            environment: a name that ``jumanji.make`` knows, or an environment of jumanji.

        Raises:
            RunError: jumanji is not installed.
            ValueError: the name is not known; the actions are not discrete; there are rewards for
                several agents; or the mask says of each part of an action by itself what is
                allowed, so that there are as many choices as parts.
        """
        jumanji, specs = library("jumanji"), library("jumanji.specs")
        if isinstance(environment, str):
            environment = jumanji.make(environment)
        called = f"{type(environment).__name__} of jumanji"
        spec = environment.action_spec
        if isinstance(spec, specs.DiscreteArray):
            self.parts, self.num_actions = (), int(spec.num_values)
        elif isinstance(spec, specs.MultiDiscreteArray):
            self.parts = tuple(int(n) for n in spec.num_values.reshape(-1))
            self.num_actions = math.prod(self.parts)
        else:
            raise ValueError(f"{called} has actions of {spec}; they must be discrete")
        if environment.reward_spec.shape != ():
            raise ValueError(
                f"{called} gives rewards of shape {environment.reward_spec.shape}, to several "
                "agents; there must be one"
            )
        _, first = jax.eval_shape(environment.reset, jax.random.PRNGKey(0))
        mask = getattr(first.observation, "action_mask", None)
        wanted = self.parts or (self.num_actions,)
        if mask is not None and mask.shape != wanted:
            raise ValueError(
                f"{called} has a mask of shape {mask.shape} for actions of {wanted} values: it "
                "does not say which of their combinations are allowed"
            )
        self._held = Foreign(environment)

    @property
    def environment(self) -> Any:
        """The environment of jumanji."""
        return self._held.environment

    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        """Starts an episode."""
        return self._shown(*self.environment.reset(jax.random.key_data(key)))

    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: IntScalarLike
    ) -> tuple[ArrayTree, TimeStep]:
        """Takes one action."""
        action = jnp.asarray(action, jnp.int32)
        if self.parts:
            action = jnp.stack(jnp.unravel_index(action, self.parts))
        action = action.astype(self.environment.action_spec.dtype)
        state = state.replace(key=jax.random.key_data(key))
        return self._shown(*self.environment.step(state, action))

    def _shown(self, state: Any, timestep: Any) -> tuple[ArrayTree, TimeStep]:
        ended = timestep.last()
        mask = getattr(timestep.observation, "action_mask", None)
        mask = jnp.ones(self.num_actions, bool) if mask is None else mask.reshape(-1)
        return settled(state.replace(key=jnp.zeros_like(state.key))), TimeStep(
            observation=settled(timestep.observation),
            action_mask=lawful(mask.astype(bool), ended),
            reward=jnp.asarray(timestep.reward, jnp.float32),
            terminated=ended & (timestep.discount == 0),
            truncated=ended & (timestep.discount != 0),
            info=told(timestep.extras),
        )
