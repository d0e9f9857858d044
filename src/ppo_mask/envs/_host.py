"""Environments outside of JAX: a step runs on the host and changes the state in place."""

from abc import abstractmethod
from typing import Any, TypeVar

import jax
from jax.core import Tracer
from jaxtyping import Array, Bool, Key

from ppo_mask.envs._env import AbstractEnv, Next, TimeStep
from ppo_mask.envs.actions import Action

State = TypeVar("State")
Result = TypeVar("Result")


class AbstractHostEnv(AbstractEnv[State]):
    """An environment whose state is outside of JAX, such as one written in Python.

    A step changes the state in place, so an earlier state cannot be stepped again. Environments are
    stepped and reset only as a batch, by :meth:`step_and_reset`. A wrapper around a host
    environment must have that method, too, as :class:`TimeLimit` does.
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
        """See :meth:`AbstractEnv.step_and_reset`.

        Args:
            step_key: as for ``step``.
            reset_key: as for ``reset``.
            state: from the last ``step`` or ``reset``.
            action: from 0 to ``num_actions`` - 1; if MultiDiscrete, one number for each part.
            cut: whether to truncate the episode after this step, unless the step ends it.
        """

    @abstractmethod
    def take_failure(self) -> Exception | None:
        """Returns and clears the error that broke the environment; None if there is none.

        Compiled code cannot raise. After a failure, steps give rewards of NaN and masks that allow
        nothing, so the training loop soon ends. The trainer then calls this method to learn why.
        """

    @abstractmethod
    def release(self) -> None:
        """Closes the batch of environments that the latest ``reset`` started."""

    @abstractmethod
    def prepare_to_draw(self, as_text: bool) -> None:
        """Makes the environments of later resets such that they can be drawn, in this process.

        Args:
            as_text: whether to draw text; otherwise pixels, or text if there are none.
        """


def host_env_in(env: AbstractEnv[Any]) -> AbstractHostEnv[Any] | None:
    """Returns the host environment that ``env`` is or wraps; None if there is none."""

    def on_host(leaf: Any) -> bool:
        return isinstance(leaf, AbstractHostEnv)

    return next(filter(on_host, jax.tree.leaves(env, is_leaf=on_host)), None)


def raise_failure(env: AbstractEnv[Any], result: Result) -> Result:
    """Raises the error that broke a host environment in a call that is not compiled, if any.

    Returns:
        ``result``, what the call returned.
    """
    host_env = host_env_in(env)
    if host_env is None or any(isinstance(x, Tracer) for x in jax.tree.leaves(result)):
        return result
    jax.block_until_ready(result)
    if (failure := host_env.take_failure()) is not None:
        raise failure
    return result


def require_host_support(env: AbstractEnv[Any]) -> None:
    """Checks that a wrapper around an environment in Python, if ``env`` is one, steps it in place.

    Raises:
        ValueError: it has only the ``step_and_reset`` of environments in JAX.
    """
    is_default = type(env).step_and_reset is AbstractEnv.step_and_reset
    if is_default and host_env_in(env) is not None:
        raise ValueError(
            f"{type(env).__name__} cannot hold an environment that lives in Python: it has no "
            "step_and_reset of its own; use a wrapper of the environment's own library"
        )
