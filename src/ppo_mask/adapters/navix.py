"""Environments of navix: MiniGrid's rooms, doors and keys.

Pignatelli et al. 2024, arXiv:2407.19396; https://github.com/epignatelli/navix
"""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ppo_mask.adapters._shared import import_library, make_named, make_timestep
from ppo_mask.envs import AbstractEnv, ArrayInfo, TimeStep
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.drawing import Picture
from ppo_mask.jax_tools import ArrayTree, IntScalarLike
from ppo_mask.jax_tools._trees import strong_types


@final
class NavixEnv(AbstractEnv[ArrayTree]):
    """An environment of navix.

    All actions are allowed, since navix has no masks. The environment's time limit truncates
    episodes. ``info`` is navix's: the episode's ``return`` so far.

    Randomness comes from the key of ``step``, not from the key in navix's state. The state leaves
    out navix's picture of the empty grid, which would be most of the state; each step draws the
    picture again.

    Attributes:
        num_actions: the number of actions.
    """

    num_actions: int = eqx.field(static=True)
    # A function, since navix's environments hold arrays, which have no hash.
    _held: Callable[[], Any] = eqx.field(static=True)

    def __init__(self, environment: Any):
        """Wraps an environment, which may be given by its name.

        Args:
            environment: an environment of navix, with any time limit and observations, or a name
                that ``navix.make`` knows.

        Raises:
            RunError: navix is not installed.
            ValueError: the name is unknown.
        """
        navix = import_library("navix")
        environment = make_named(navix.make, "navix", environment)
        self.num_actions = len(environment.action_set)
        self._held = lambda: environment

    @property
    def observation_info(self) -> ArrayInfo:
        """The bounds of the observation's space; the channels are the last axis."""
        space = self.environment.observation_space
        low, high = np.asarray(space.minimum).min(), np.asarray(space.maximum).max()
        return ArrayInfo((low, high), channels_first=False)

    @property
    def environment(self) -> Any:
        """The environment of navix."""
        return self._held()

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        return self._convert(self.environment.reset(jax.random.key_data(key)))

    @jitted
    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: IntScalarLike
    ) -> tuple[ArrayTree, TimeStep]:
        state = strong_types(state)  # Copies the dictionaries, since navix writes into them.
        inner = _with_cache(state.state).replace(key=jax.random.key_data(key))
        # 0 marks a step that is not the last: after a last step, navix would reset.
        before = state.replace(state=inner, step_type=jnp.zeros_like(state.step_type))
        return self._convert(self.environment.step(before, jnp.asarray(action, jnp.int32)))

    def draw(self, state: ArrayTree, timestep: TimeStep) -> Picture:
        """Draws the whole grid as navix does."""
        del timestep
        return np.asarray(import_library("navix").observations.rgb(_with_cache(state.state)))

    def _convert(self, timestep: Any) -> tuple[ArrayTree, TimeStep]:
        inner = timestep.state.replace(key=jnp.zeros_like(timestep.state.key), cache=None)
        return strong_types(timestep.replace(state=inner, observation=None)), make_timestep(
            timestep.observation,
            jnp.ones(self.num_actions, bool),
            timestep.reward,
            timestep.is_termination(),
            timestep.is_truncation(),
            timestep.info,
        )


def _with_cache(inner: Any) -> Any:
    """The state of navix with its picture of the empty grid."""
    cache = import_library("navix").rendering.cache.RenderingCache.init(inner.grid)
    return inner.replace(cache=cache)
