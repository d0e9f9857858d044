"""Curricula: an environment that changes in the course of a run.

Most are functions ``(env, progress) -> env`` that shift weights between starting points, which a
:class:`Schedule` gives. An :class:`AbstractCurriculum` also has a memory of the training so far.
The memory of :class:`SelfPlay` is a copy of the learner.
"""

from abc import abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Real

from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import check_at_least
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import AbstractActorCritic


class AbstractCurriculum(eqx.Module):
    """A curriculum with a memory, such as of the starting points that are solved.

    Its methods are traced in the compiled loop. The memory is a part of the training state: it is
    saved with it, and a resumed run continues as if it had not been stopped.

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

    def init(self, model: AbstractActorCritic) -> ArrayTree:
        """The memory before the first update, a tree of arrays; nothing by default.

        Args:
            model: before training.
        """
        return ()

    def renew(
        self, memory: ArrayTree, model: AbstractActorCritic, updates: Real[Array, ""]
    ) -> ArrayTree:
        """The memory that an update begins with; by default unchanged.

        Args:
            memory: after the last update; the result must have the same shapes and types.
            model: as it is now.
            updates: done so far.
        """
        return memory

    @abstractmethod
    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: ArrayTree
    ) -> AbstractEnv[Any]:
        """The environment to train on in an update.

        Args:
            env: as it was given. Only values of array fields may change: nothing is compiled again.
            progress: share of the run's updates that are done; 0 in the first, under 1 in the last.
            memory: that the update begins with.
        """

    def update(
        self, memory: ArrayTree, info: Mapping[str, Array], ended: Bool[Array, "steps envs"]
    ) -> ArrayTree:
        """The memory after a rollout; by default as before.

        Args:
            memory: before the rollout; the result must have the same shapes and types.
            info: of its steps, with axes [steps, envs, …].
            ended: the steps that ended an episode.
        """
        return memory


Curriculum = Callable[[AbstractEnv[Any], Float[Array, ""]], AbstractEnv[Any]] | AbstractCurriculum
"""A function from the environment and the progress to the environment to train on, as
:meth:`AbstractCurriculum.__call__` without a memory; or a curriculum with one."""


def as_curriculum(curriculum: Curriculum | None) -> AbstractCurriculum:
    """A curriculum without a memory, from a function or None."""
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


@final
class SelfPlay(AbstractCurriculum):
    """A curriculum that puts a copy of the learner into the environment, as its own opponent.

    The copy is its memory. It is renewed before every ``every``-th update, the first one included.
    A renewal is a change of values; nothing is compiled again. An episode under way goes on against
    the new copy.

    Evaluations use the environment as it was given, with its own opponent.

    Attributes:
        where: from the environment to the part that the copy replaces, as for
            ``equinox.tree_at``.
        every: updates between renewals.

    Raises:
        FieldError: ``every`` is below 1.

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
        check_at_least(1, every=self.every)

    def init(self, model: AbstractActorCritic) -> AbstractActorCritic:
        """The first copy."""
        return model

    def renew(
        self, memory: AbstractActorCritic, model: AbstractActorCritic, updates: Real[Array, ""]
    ) -> AbstractActorCritic:
        """The copy to play against in the next update."""
        due = updates.astype(jnp.int32) % self.every == 0

        def newer(old: Any, new: Any) -> Any:
            return jnp.where(due, new, old) if eqx.is_array(old) else old

        return jax.tree.map(newer, memory, model)

    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: AbstractActorCritic
    ) -> AbstractEnv[Any]:
        """The environment with the copy in it."""
        return eqx.tree_at(self.where, env, memory, is_leaf=lambda x: x is None)


class Schedule(eqx.Module):
    """Weights that are constant in each of several phases of a run.

    Attributes:
        weights: of each phase.
        until: the progress at which each phase but the last ends, rising.
    """

    weights: Float[Array, "phases starts"]
    until: Float[Array, " phases-1"]

    def __call__(self, progress: Float[Array, ""]) -> Float[Array, " starts"]:
        """The weights at this progress; the end of a phase belongs to the next one."""
        return self.weights[jnp.sum(progress >= self.until, dtype=jnp.int32)]
