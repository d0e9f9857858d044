"""Environments of gymnax: classic control, MinAtar, bsuite and others.

https://github.com/RobertTLange/gymnax
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ppo_mask.adapters._shared import Foreign, library, settled, told
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import ArrayTree, IntScalarLike, zeros_from_shapes


@final
class GymnaxEnv(AbstractEnv[ArrayTree]):
    """An environment of gymnax, such as ``GymnaxEnv("CartPole-v1")``.

    gymnax has no masks: all actions are allowed. Its time limit, ``max_steps_in_episode`` of the
    parameters, truncates. ``info`` is that of the step, and zeros after ``reset``.

    Attributes:
        params: the environment's parameters; those that are arrays may differ between tasks and
            change with a curriculum.
        num_actions: the environment's.
    """

    params: Any
    num_actions: int = eqx.field(static=True)
    _held: Foreign = eqx.field(static=True)

    def __init__(self, environment: Any, params: Any = None):
        """Takes an environment.

        Args:
            environment: a name that ``gymnax.make`` knows, or an environment of gymnax.
            params: its parameters; None for its own.

        Raises:
            RunError: gymnax is not installed.
            ValueError: the name is not known, or the actions are not discrete.
        """
        gymnax = library("gymnax")
        if isinstance(environment, str):
            environment, _ = gymnax.make(environment)
        self.params = environment.default_params if params is None else params
        space = environment.action_space(self.params)
        if not isinstance(space, gymnax.environments.spaces.Discrete):
            raise ValueError(
                f"{environment.name} of gymnax has actions of {space}; they must be Discrete"
            )
        self.num_actions = int(space.n)
        self._held = Foreign(environment)

    @property
    def environment(self) -> Any:
        """The environment of gymnax."""
        return self._held.environment

    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        """Starts an episode."""
        observation, state = self.environment.reset_env(key, self.params)
        action = jnp.zeros((), jnp.int32)
        info = zeros_from_shapes(jax.eval_shape(lambda: told(self._step(key, state, action)[-1])))
        never = jnp.array(False)
        return self._shown(state, observation, 0.0, never, never, info)

    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: IntScalarLike
    ) -> tuple[ArrayTree, TimeStep]:
        """Takes one action."""
        observation, state, reward, terminated, info = self._step(key, state, action)
        truncated = self.environment.is_truncated(state, self.params)
        return self._shown(state, observation, reward, terminated, truncated, told(info))

    def _step(self, key: Any, state: Any, action: Any) -> Any:
        return self.environment.step_env(key, state, jnp.asarray(action, jnp.int32), self.params)

    def _shown(
        self, state: Any, observation: Any, reward: Any, terminated: Any, truncated: Any, info: Any
    ) -> tuple[ArrayTree, TimeStep]:
        terminated = jnp.asarray(terminated, bool)
        return settled(state), TimeStep(
            observation=settled(observation),
            action_mask=jnp.ones(self.num_actions, bool),
            reward=jnp.asarray(reward, jnp.float32),
            terminated=terminated,
            truncated=jnp.asarray(truncated, bool) & ~terminated,
            info=info,
        )
