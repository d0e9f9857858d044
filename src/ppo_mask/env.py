"""The environment protocol: what an environment is, and nothing about learning.

An environment is a pure pair of functions, ``reset`` and ``step``, over one episode at a time.
Randomness comes in as a key argument, never from the state; batching, auto-reset and episode
statistics are :class:`ppo_mask.vector.VectorEnv`'s work.
"""

from abc import abstractmethod
from typing import Generic, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask._rarely import rarely
from ppo_mask._types import ArrayTree

__all__ = ["AbstractEnv", "TimeStep", "rarely"]

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

    Put an implementation through :func:`ppo_mask.testing.check_env`, which tests every law below.

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
        self, key: Key[Array, ""], state: State, action: Int[Array, ""]
    ) -> tuple[State, TimeStep]:
        """Takes one action."""
