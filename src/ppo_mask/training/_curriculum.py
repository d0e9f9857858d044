"""Curricula: environments that change during a run.

Most curricula are functions ``(env, progress) -> env`` that change how often an episode begins at
each starting point. An :class:`AbstractCurriculum` also has a memory of the training so far, such
as the opponents of :class:`~ppo_mask.training.SelfPlay`.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real, Scalar

from ppo_mask.envs import AbstractEnv
from ppo_mask.jax_tools import ArrayTree, number_settings
from ppo_mask.networks import Model
from ppo_mask.training._algorithm import AbstractAlgorithm

Tree = TypeVar("Tree")


class AbstractCurriculum(eqx.Module):
    """A curriculum with a memory, for example of the starting points that are solved.

    All methods are traced in the compiled loop. The memory is part of the training state, so
    checkpoints hold the memory, and a resumed run continues as if it had not stopped.

    Example:
        >>> import dataclasses
        >>> import jax.numpy as jnp
        >>> import ppo_mask as pm
        >>> class HarderWhenSolved(pm.training.AbstractCurriculum):
        ...     def init(self, model):
        ...         return jnp.float32(1)
        ...     def __call__(self, env, progress, memory):
        ...         return dataclasses.replace(env, difficulty=memory)
        ...     def update(self, memory, info, ended):
        ...         return jnp.where(info["won"].mean() > 0.5, memory + 1, memory)
    """

    def init(self, model: Model) -> ArrayTree:
        """Makes the memory before the first update, a tree of arrays; empty by default.

        Args:
            model: the model before training.
        """
        return ()

    def renew(self, memory: ArrayTree, model: Model, updates: Real[Array, ""]) -> ArrayTree:
        """Returns the new memory before an update's rollout; by default, the old memory.

        Args:
            memory: the memory after the last update; the result must have the same shapes and
                types.
            model: the model before the update.
            updates: updates done so far.
        """
        return memory

    @abstractmethod
    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: ArrayTree
    ) -> AbstractEnv[Any]:
        """Makes the environment for an update.

        Args:
            env: the trainer's environment. Only values of its array fields may change, so that
                nothing compiles again.
            progress: share of the run's updates done; 0 in the first update, under 1 in the last.
            memory: the memory from :meth:`renew`.
        """

    def update(
        self, memory: ArrayTree, info: Mapping[str, Array], ended: Bool[Array, "steps envs"]
    ) -> ArrayTree:
        """Returns the new memory after an update's rollout; by default, the old memory.

        Args:
            memory: the memory before the rollout; the result must have the same shapes and types.
            info: the info of the rollout's steps, with axes [steps, envs, …].
            ended: whether each step ended an episode.
        """
        return memory

    def metrics(self, memory: ArrayTree) -> dict[str, Scalar]:
        """Returns what a log line says of the memory, by name; by default, nothing.

        Args:
            memory: the memory after the line's last update.
        """
        return {}


Curriculum = Callable[[AbstractEnv[Any], Float[Array, ""]], AbstractEnv[Any]] | AbstractCurriculum
"""A function like :meth:`AbstractCurriculum.__call__` but without the argument ``memory``; or an
:class:`AbstractCurriculum`."""


def as_curriculum(curriculum: Curriculum | None) -> AbstractCurriculum:
    """Converts a function, or None, to a curriculum without a memory."""
    if isinstance(curriculum, AbstractCurriculum):
        return curriculum
    return _Forgetful(_unchanged if curriculum is None else curriculum)


@final
class _Forgetful(AbstractCurriculum):
    function: Callable[[AbstractEnv[Any], Float[Array, ""]], AbstractEnv[Any]]

    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: ArrayTree
    ) -> AbstractEnv[Any]:
        return self.function(env, progress)


def _unchanged(env: AbstractEnv[Any], progress: Float[Array, ""]) -> AbstractEnv[Any]:
    return env


class Phases(eqx.Module, Generic[Tree]):
    """Numbers that change during a run, in phases.

    Within a phase, each number goes linearly from its value in ``first`` to its value in ``last``.

    Attributes:
        first: the numbers at the start of each phase, a tree whose arrays have a leading axis of
            phases.
        last: the numbers at the end of each phase, likewise.
        until: the progress at which each phase ends, in increasing order.

    Example:
        >>> import jax.numpy as jnp
        >>> import ppo_mask as pm
        >>> values = {"easy": jnp.array([1.0, 0.5])}
        >>> phases = pm.training.Phases(values, values, until=jnp.array([0.3, 1.0]))
        >>> float(phases(jnp.float32(0.6))["easy"])
        0.5
    """

    first: Tree
    last: Tree
    until: Float[Array, " phases"]

    @number_settings()
    def __call__(self, progress: Float[Array, ""]) -> Tree:
        """Returns the numbers at this progress; the end of a phase belongs to the next phase."""
        phase = jnp.sum(progress >= self.until[:-1], dtype=jnp.int32)
        begin = jnp.where(phase > 0, self.until[phase - 1], 0)
        share = jnp.clip((progress - begin) / (self.until[phase] - begin), 0, 1)

        def value(first: Any, last: Any) -> Any:
            if not eqx.is_array(first):
                return first
            return first[phase] + share * (last[phase] - first[phase])

        return jax.tree.map(value, self.first, self.last)


Schedule = Callable[[AbstractAlgorithm, Float[Array, ""]], AbstractAlgorithm]
"""A function that changes an algorithm's numbers as a :data:`Curriculum` changes environments."""
