"""Curricula: an environment that changes in the course of a run.

A :data:`Curriculum` is a pure function from the environment and the run's progress to the
environment to train on. It is called inside the compiled loop, so it may change the values of array
fields and nothing else, and nothing is compiled again. Most only shift weights between starting
points, as a :class:`Schedule` gives them.

An :class:`AbstractAdaptiveCurriculum` has a memory besides: what it has seen of training so far.
That of :class:`SelfPlay` is a copy of the learner.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

from ppo_mask.envs._env import AbstractEnv
from ppo_mask.envs._self_play import SelfPlay
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import AbstractActorCritic


class AbstractAdaptiveCurriculum(eqx.Module):
    """A curriculum that looks at how training goes, such as at which starting points are solved.

    Its memory is a part of the training state: it is saved with it, and a resumed run continues as
    if it had not been stopped.

    Example:
        >>> import dataclasses
        >>> import jax.numpy as jnp
        >>> import ppo_mask as pm
        >>> class HarderWhenSolved(pm.envs.AbstractAdaptiveCurriculum):
        ...     def init(self):
        ...         return jnp.float32(1)
        ...     def update(self, memory, info, ended):
        ...         return jnp.where(info["won"].mean() > 0.5, memory + 1, memory)
        ...     def __call__(self, env, progress, memory):
        ...         return dataclasses.replace(env, difficulty=memory)
    """

    @abstractmethod
    def init(self) -> ArrayTree:
        """What is remembered before the first update: a tree of arrays."""

    @abstractmethod
    def update(
        self, memory: ArrayTree, info: Mapping[str, Array], ended: Bool[Array, "steps envs"]
    ) -> ArrayTree:
        """What is remembered after a rollout.

        Args:
            memory: before it; what is returned has the same shapes and types.
            info: of its steps, with axes [steps, envs, …].
            ended: the steps that ended an episode.
        """

    @abstractmethod
    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: ArrayTree
    ) -> AbstractEnv[Any]:
        """The environment to train on, as a :data:`Curriculum` that knows the memory."""


Curriculum = (
    Callable[[AbstractEnv[Any], Float[Array, ""]], AbstractEnv[Any]]
    | AbstractAdaptiveCurriculum
    | SelfPlay
)
"""From an environment and the progress, updates done of updates in all, to the environment as it is
at that moment. Progress is 0 in the first update and less than 1 in the last one."""


def env_at(
    env: AbstractEnv[Any],
    curriculum: Curriculum | None,
    updates: Real[Array, ""],
    total_updates: Real[Array, ""],
    memory: Any = (),
) -> AbstractEnv[Any]:
    """Applies a curriculum.

    Args:
        env: the environment as it was given.
        curriculum: None leaves it as it is.
        updates: done so far.
        total_updates: of the whole run.
        memory: of a curriculum that has one, as the update begins with it.

    Returns:
        The environment to train on in the next update.
    """
    if curriculum is None:
        return env
    if isinstance(curriculum, SelfPlay):
        return curriculum(env, memory)
    progress = updates.astype(jnp.float32) / jnp.maximum(total_updates.astype(jnp.float32), 1)
    if isinstance(curriculum, AbstractAdaptiveCurriculum):
        return curriculum(env, progress, memory)
    return curriculum(env, progress)


def first_memory(curriculum: Curriculum | None, model: AbstractActorCritic) -> ArrayTree:
    """The memory of a curriculum before the first update; ``()`` if it has none."""
    if isinstance(curriculum, SelfPlay):
        return model
    return curriculum.init() if isinstance(curriculum, AbstractAdaptiveCurriculum) else ()


def renewed_memory(
    curriculum: Curriculum | None, memory: Any, model: AbstractActorCritic, updates: Real[Array, ""]
) -> ArrayTree:
    """The memory that an update begins with: that of self-play may be a new copy of the model."""
    return curriculum.renew(memory, model, updates) if isinstance(curriculum, SelfPlay) else memory


def next_memory(
    curriculum: Curriculum | None,
    memory: ArrayTree,
    info: Mapping[str, Array],
    ended: Bool[Array, "steps envs"],
) -> ArrayTree:
    """The memory of a curriculum after a rollout; see :class:`AbstractAdaptiveCurriculum`."""
    if isinstance(curriculum, AbstractAdaptiveCurriculum):
        return curriculum.update(memory, info, ended)
    return memory


class Schedule(eqx.Module):
    """Weights that are constant in each of several phases of a run.

    Attributes:
        weights: of each phase.
        until: the progress at which each phase but the last ends, rising.
    """

    weights: Float[Array, "phases starts"]
    until: Float[Array, " phases-1"]

    def __call__(self, progress: Float[Array, ""]) -> Float[Array, " starts"]:
        """The weights at this progress; where one phase ends the next has begun."""
        return self.weights[jnp.sum(progress >= self.until, dtype=jnp.int32)]
