"""Environments that do not live in JAX: stepped on the host, in place."""

from abc import abstractmethod
from typing import Any, TypeVar

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Key

from ppo_mask.envs._env import AbstractEnv, AbstractSelfResettingEnv, Next, TimeStep
from ppo_mask.networks.choices import Action

State = TypeVar("State")


class AbstractHostEnv(AbstractSelfResettingEnv[State]):
    """An environment whose true state is outside of JAX, such as one written in Python.

    A step changes it in place: an earlier state cannot be stepped again. So it is stepped and reset
    as a batch only, by :meth:`step_and_reset`, and a wrapper of it needs that method too, as
    :class:`TimeLimit` and :class:`FlatObservation` have it.

    Attributes:
        overlaps: whether :meth:`begin_step` begins steps of one half of the environments. A rollout
            then acts in the other half meanwhile.
    """

    overlaps: eqx.AbstractVar[bool]

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
            action: from 0 to ``num_actions`` - 1; of several choices, one for each.
            cut: truncates the episode after this step, if the step does not end it.
        """

    @abstractmethod
    def begin_step(self, state: State, action: Action, then: State) -> State:
        """Says what step comes next in one of the :func:`halves` of a batch, to begin it already.

        Args:
            state: of the half; unlike elsewhere with an axis of environments.
            action: that will be taken in each, by :meth:`step_and_reset`, with nothing cut off.
            then: the state of what is to be stepped after this has begun.

        Returns:
            ``then``: what uses it comes after.
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


def halves(num_envs: int) -> list[range]:
    """The rows of the two parts of a batch that are stepped in turn where steps overlap."""
    return [range(num_envs // 2), range(num_envs // 2, num_envs)]


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
