"""The environment protocol: what an environment is, and nothing about learning.

An environment is a pure pair of functions, ``reset`` and ``step``, over one episode at a time.
Randomness comes in as a key argument, never from the state; batching, auto-reset and episode
statistics are :class:`ppo_mask.envs.VectorEnv`'s work.
"""

from abc import abstractmethod
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.jax_tools import ArrayTree

State = TypeVar("State")


class TimeStep(eqx.Module):
    """The result of ``reset`` or ``step``, as an agent and its learner need it.

    Attributes:
        observation: any tree of arrays, of the same structure, shapes and dtypes at every step.
        action_mask: True where an action is allowed. Required, and never all False; where the
            episode has ended nothing is left to choose and it is all True.
        reward: of the step just taken; what ``reset`` gives is not used.
        terminated: the episode ended in a terminal state, whose value is 0.
        truncated: the episode was cut off (a step limit); its last state still has a value.
        info: per-step facts for metrics, the same keys and shapes from ``reset`` and ``step``.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> timestep = pm.TimeStep(
        ...     observation=jnp.zeros(4),
        ...     action_mask=jnp.array([True, False, True]),
        ...     reward=jnp.float32(0),
        ...     terminated=jnp.array(False),
        ...     truncated=jnp.array(False),
        ...     info={"score": jnp.float32(0)},
        ... )
        >>> int(timestep.action_mask.sum())
        2
    """

    observation: ArrayTree
    action_mask: Bool[Array, " actions"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


class AbstractEnv(eqx.Module, Generic[State]):
    """An environment: one episode at a time, pure, jit-able and vmap-able.

    :func:`ppo_mask.envs.check_env` tests an implementation for every law below.

    - ``reset`` and ``step`` are deterministic in their arguments; the key is used, not stored.
    - States, observations and infos keep their structure, shapes and dtypes.
    - ``step`` never resets: after an episode has ended its result is unspecified.
    - An action outside the mask must not crash; what it does is the environment's to document.

    Attributes:
        num_actions: length of the mask; actions are 0 to ``num_actions`` - 1.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Stairs(pm.AbstractEnv):
        ...     num_actions: int = eqx.field(static=True, default=2)
        ...     def reset(self, key):
        ...         floor = jax.random.randint(key, (), 0, 3)
        ...         return floor, self.timestep(floor)
        ...     def step(self, key, state, action):
        ...         floor = jnp.maximum(state + 2 * action - 1, 0)
        ...         return floor, self.timestep(floor, reward=action.astype(jnp.float32))
        ...     def timestep(self, floor, reward=jnp.float32(0)):
        ...         ended = floor >= 5
        ...         mask = jnp.stack([floor > 0, jnp.array(True)])  # Nothing is below floor 0.
        ...         return pm.TimeStep(
        ...             jnp.float32(floor)[None], mask | ended, reward, ended, jnp.array(False), {}
        ...         )
        >>> state, timestep = Stairs().reset(jax.random.key(0))
        >>> state, timestep = Stairs().step(jax.random.key(1), jnp.int32(0), jnp.int32(1))
        >>> print(state, timestep.reward, timestep.action_mask)
        1 1.0 [ True  True]
    """

    num_actions: eqx.AbstractVar[int]

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[State, TimeStep]:
        """Starts an episode.

        Args:
            key: draws whatever is random about the start.

        Returns:
            The state, any tree of arrays; and a timestep that has not ended, whose reward is not
            used.
        """

    @abstractmethod
    def step(
        self, key: Key[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, TimeStep]:
        """Takes one action.

        Args:
            key: draws whatever is random about the step.
            state: of an episode that has not ended.
            action: from 0 to ``num_actions`` - 1.

        Returns:
            The next state, and what it gives the agent.
        """


class Next(eqx.Module, Generic[State]):
    """Where the next action is to be taken: in a new episode if the step ended one.

    Attributes:
        state: the environment's.
        observation: of that state.
        action_mask: True where an action is allowed there.
    """

    state: ArrayTree
    observation: ArrayTree
    action_mask: Bool[Array, " actions"]


class AbstractSelfResettingEnv(AbstractEnv[State]):
    """An environment with a step and reset in one, cheaper than one after the other.

    For work that a step and a reset share, such as drawing a level. Optional: only
    :class:`ppo_mask.envs.VectorEnv`, which has the only auto-reset, calls it.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Coin(pm.AbstractSelfResettingEnv):
        ...     num_actions: int = eqx.field(static=True, default=2)
        ...     def reset(self, key):
        ...         coin = jax.random.bernoulli(key)
        ...         return coin, self.timestep(coin, jnp.float32(0), jnp.array(False))
        ...     def step(self, key, state, action):
        ...         reward = jnp.float32(action == state)
        ...         return state, self.timestep(state, reward, jnp.array(True))
        ...     def step_and_reset(self, step_key, reset_key, state, action):
        ...         _, final = self.step(step_key, state, action)
        ...         state, first = self.reset(reset_key)  # Each step here ends its episode.
        ...         return final, pm.envs.Next(state, first.observation, first.action_mask)
        ...     def timestep(self, coin, reward, ended):
        ...         mask = jnp.ones(2, bool)
        ...         return pm.TimeStep(jnp.float32(coin), mask, reward, ended, jnp.array(False), {})
        >>> pm.check_env(Coin(), num_steps=4)
    """

    @abstractmethod
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: State,
        action: Int[Array, ""],
    ) -> tuple[TimeStep, Next[State]]:
        """Takes one action and, if that ends the episode, starts another.

        Args:
            step_key: as for ``step``.
            reset_key: as for ``reset``.
            state: of an episode that has not ended.
            action: from 0 to ``num_actions`` - 1.

        Returns:
            The timestep that ``step(step_key, state, action)`` gives; and what it leads to, or what
            ``reset(reset_key)`` gives where the episode has ended.
        """
