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
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

from ppo_mask.envs import AbstractEnv
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
        >>> class HarderWhenSolved(pm.training.AbstractAdaptiveCurriculum):
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


@final
class SelfPlay(eqx.Module):
    """A curriculum that puts a copy of the learner into the environment, as its own opponent.

    The copy is renewed before every ``every``-th update, the first one included. It is the
    curriculum's memory, and so a part of the training state: it is saved with it, and a resumed run
    continues as if it had not been stopped. A renewal is a change of values; nothing is compiled
    again. An episode under way goes on against the new copy.

    What is evaluated is the environment as it was given, with whatever opponent it has there.

    Attributes:
        where: from the environment to the part of it that the copy takes the place of, as for
            ``equinox.tree_at``.
        every: updates that a copy plays for.

    Raises:
        ValueError: ``every`` is below 1.

    Example:
        >>> import ppo_mask as pm
        >>> from ppo_mask.adapters.pgx import PgxEnv, random_opponent
        >>> env = PgxEnv("tic_tac_toe", random_opponent)
        >>> curriculum = pm.training.SelfPlay(lambda env: env.opponent, every=5)
        >>> config = pm.PPOConfig(num_envs=4, num_steps=8)
        >>> trainer = pm.Trainer(env, config, curriculum=curriculum)
    """

    where: Callable[[Any], Any] = eqx.field(static=True)
    every: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}")

    def renew(
        self, copy: AbstractActorCritic, learner: AbstractActorCritic, updates: Real[Array, ""]
    ) -> AbstractActorCritic:
        """The copy to play against in the next update.

        Args:
            copy: the last one.
            learner: as it is now.
            updates: done so far.
        """
        due = updates.astype(jnp.uint32) % jnp.uint32(self.every) == 0

        def newer(old: Any, new: Any) -> Any:
            return jnp.where(due, new, old) if eqx.is_array(old) else old

        return jax.tree.map(newer, copy, learner)

    def __call__(self, env: AbstractEnv[Any], copy: AbstractActorCritic) -> AbstractEnv[Any]:
        """The environment to train on."""
        return eqx.tree_at(self.where, env, copy, is_leaf=lambda x: x is None)


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
