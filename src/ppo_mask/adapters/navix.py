"""Environments of navix: MiniGrid's rooms, doors and keys.

Pignatelli et al. 2024, arXiv:2407.19396; https://github.com/epignatelli/navix
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ppo_mask.adapters._shared import Foreign, library, settled, told
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import ArrayTree, IntScalarLike


@final
class NavixEnv(AbstractEnv[ArrayTree]):
    """An environment of navix, such as ``NavixEnv("Navix-Empty-5x5-v0")``.

    navix has no masks: all actions are allowed. Its time limit truncates. ``info`` is navix's: the
    episode's ``return`` so far.

    navix keeps a random key in its state, which is replaced here by ``step``'s own, and the
    picture of the empty grid, most of what a state weighs, which is drawn here when it is needed.

    Attributes:
        num_actions: the environment's.
    """

    num_actions: int = eqx.field(static=True)
    _held: Foreign = eqx.field(static=True)

    def __init__(self, environment: Any):
        """Takes an environment.

        Args:
            environment: a name that ``navix.make`` knows, or an environment of navix; with one the
                time limit and what is observed can be chosen.

        Raises:
            RunError: navix is not installed.
            ValueError: the name is not known.
        """
        navix = library("navix")
        if isinstance(environment, str):
            try:
                environment = navix.make(environment)
            except NotImplementedError as error:
                raise ValueError(str(error)) from None
        self.num_actions = len(environment.action_set)
        self._held = Foreign(environment)

    @property
    def environment(self) -> Any:
        """The environment of navix."""
        return self._held.environment

    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        """Starts an episode."""
        return self._shown(self.environment.reset(jax.random.key_data(key)))

    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: IntScalarLike
    ) -> tuple[ArrayTree, TimeStep]:
        """Takes one action."""
        state = settled(state)  # navix writes into the dictionaries that it is given.
        cache = library("navix").rendering.cache.RenderingCache.init(state.state.grid)
        inner = state.state.replace(key=jax.random.key_data(key), cache=cache)
        # navix resets with the step after the last, which it tells by the type of the step before.
        going_on = jnp.zeros_like(state.step_type)
        before = state.replace(state=inner, step_type=going_on)
        return self._shown(self.environment.step(before, jnp.asarray(action, jnp.int32)))

    def _shown(self, timestep: Any) -> tuple[ArrayTree, TimeStep]:
        inner = timestep.state.replace(key=jnp.zeros_like(timestep.state.key), cache=None)
        return settled(timestep.replace(state=inner, observation=None)), TimeStep(
            observation=settled(timestep.observation),
            action_mask=jnp.ones(self.num_actions, bool),
            reward=jnp.asarray(timestep.reward, jnp.float32),
            terminated=timestep.is_termination(),
            truncated=timestep.is_truncation(),
            info=told(timestep.info),
        )
