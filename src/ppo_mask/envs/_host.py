"""Environments that do not live in JAX: stepped on the host, in place."""

from abc import abstractmethod
from typing import Any, TypeVar

import jax
from jaxtyping import Array, Bool, Key

from ppo_mask.envs._env import AbstractEnv, AbstractSelfResettingEnv, Next, TimeStep
from ppo_mask.envs.actions import Action

State = TypeVar("State")


class AbstractHostEnv(AbstractSelfResettingEnv[State]):
    """An environment whose true state is outside of JAX, such as one written in Python.

    A step changes it in place: an earlier state cannot be stepped again. So it is stepped and reset
    as a batch only, by :meth:`step_and_reset`, and a wrapper of it needs that method too, as
    :class:`TimeLimit` and :class:`FlatObservation` have it.
    """

    @abstractmethod
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: State,
        action: Action,
        cut: Bool[Array, ""] | bool = False,
    ) -> tuple[TimeStep, Next[State]]:
        """See :meth:`AbstractSelfResettingEnv.step_and_reset`.

        Args:
            step_key: as for ``step``.
            reset_key: as for ``reset``.
            state: what this method or ``reset`` returned last.
            action: from 0 to ``num_actions`` - 1; if MultiDiscrete, one for each part.
            cut: truncates the episode after this step, if the step does not end it.
        """

    @abstractmethod
    def take_failure(self) -> Exception | None:
        """Returns what broke the environment, once; None if nothing did.

        Compiled code cannot raise. From the failure on, steps give rewards of NaN and masks that
        allow nothing, which ends a loop soon; whoever waits for it asks here why.
        """

    @abstractmethod
    def release(self) -> None:
        """Says that the batch of episodes begun last is not stepped any more."""


def host_env_in(env: AbstractEnv[Any]) -> AbstractHostEnv[Any] | None:
    """The environment on the host that an environment is, or wraps; None if there is none."""

    def on_host(leaf: Any) -> bool:
        return isinstance(leaf, AbstractHostEnv)

    return next(filter(on_host, jax.tree.leaves(env, is_leaf=on_host)), None)


def step_in_place(env: AbstractEnv[Any], *arguments: Any) -> tuple[TimeStep, Next[Any]]:
    """Calls ``step_and_reset`` of an environment on the host or of a wrapper of one.

    Raises:
        ValueError: the wrapper has no such method.
    """
    method = getattr(env, "step_and_reset", None)
    if method is None:
        raise ValueError(
            f"{type(env).__name__} cannot hold an environment that lives in Python: it has no "
            "step_and_reset; use a wrapper of the environment's own library"
        )
    return method(*arguments)
