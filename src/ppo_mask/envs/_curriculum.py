"""Curricula: an environment that changes in the course of a run.

A :data:`Curriculum` is a pure function from the environment and the run's progress to the
environment to train on. It is called inside the compiled loop, so it may change the values of array
fields and nothing else, and nothing is compiled again. Most only shift weights between starting
points, as a :class:`Schedule` gives them.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Real

from ppo_mask.envs._env import AbstractEnv

Curriculum = Callable[[AbstractEnv[Any], Float[Array, ""]], AbstractEnv[Any]]
"""From an environment and the progress, updates done of updates in all, to the environment as it is
at that moment. Progress is 0 in the first update and less than 1 in the last one."""


def env_at(
    env: AbstractEnv[Any],
    curriculum: Curriculum | None,
    updates: Real[Array, ""],
    total_updates: Real[Array, ""],
) -> AbstractEnv[Any]:
    """Applies a curriculum.

    Args:
        env: the environment as it was given.
        curriculum: None leaves it as it is.
        updates: done so far.
        total_updates: of the whole run.

    Returns:
        The environment to train on in the next update.
    """
    if curriculum is None:
        return env
    total = jnp.maximum(total_updates.astype(jnp.float32), 1)
    return curriculum(env, updates.astype(jnp.float32) / total)


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
