"""The environment protocol: what an environment is, and nothing about learning.

An environment is a pure pair of functions, ``reset`` and ``step``, over one episode at a time.
Randomness comes in as a key argument, never from the state; batching, auto-reset and episode
statistics are :class:`ppo_mask.envs.VectorEnv`'s work.
"""

from abc import abstractmethod
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.jax_tools import ArrayTree, IntScalarLike, rarely

__all__ = ["AbstractEnv", "AbstractSelfResettingEnv", "Next", "TimeStep", "rarely"]

State = TypeVar("State")


class TimeStep(eqx.Module):
    """What an agent sees after ``reset`` or ``step``.

    Attributes:
        observation: any tree of arrays, of the same structure, shapes and dtypes at every step.
        action_mask: True where an action is allowed. Required, and never all False; where the
            episode has ended nothing is left to choose and it is all True.
        reward: of the step just taken; 0 after ``reset``.
        terminated: the episode ended in a terminal state, whose value is 0.
        truncated: the episode was cut off (a step limit); its last state still has a value.
        info: per-step facts for metrics, the same keys and shapes from ``reset`` and ``step``.
    """

    observation: ArrayTree
    action_mask: Bool[Array, " actions"]
    reward: Float[Array, ""]
    terminated: Bool[Array, ""]
    truncated: Bool[Array, ""]
    info: dict[str, Array]


class AbstractEnv(eqx.Module, Generic[State]):
    """One episode at a time: pure, jit-able and vmap-able.

    Put an implementation through :func:`ppo_mask.envs.check_env`, which tests every law below.

    - ``reset`` and ``step`` are deterministic in their arguments; the key is used, not stored.
    - States, observations and infos keep their structure, shapes and dtypes.
    - ``step`` never resets: after an episode has ended its result is unspecified.
    - An action outside the mask must not crash; what it does is the environment's to document.
    """

    num_actions: eqx.AbstractVar[int]

    @abstractmethod
    def reset(self, key: Key[Array, ""]) -> tuple[State, TimeStep]:
        """Starts an episode."""

    @abstractmethod
    def step(
        self, key: Key[Array, ""], state: State, action: IntScalarLike
    ) -> tuple[State, TimeStep]:
        """Takes one action."""


class Next(eqx.Module, Generic[State]):
    """Where the next action is to be taken: in a new episode if the step ended one.

    Attributes:
        state: the environment's.
        observation: what the agent sees there.
        action_mask: what it may do there.
    """

    state: ArrayTree
    observation: ArrayTree
    action_mask: Bool[Array, " actions"]


class AbstractSelfResettingEnv(AbstractEnv[State]):
    """An environment that can step and begin anew in one go, cheaper than one after the other.

    For what a step and a reset share, such as drawing a level. Optional, and of use to
    :class:`ppo_mask.envs.VectorEnv` alone, which has the only auto-reset.
    """

    @abstractmethod
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: State,
        action: IntScalarLike,
    ) -> tuple[TimeStep, Next[State]]:
        """Takes one action and, if that ends the episode, starts another.

        Returns:
            The timestep that ``step(step_key, state, action)`` gives; and what it leads to, or what
            ``reset(reset_key)`` gives where the episode has ended.
        """
