"""The corridor with a starting cell of one's choice, and a curriculum over it: for whole runs."""

import dataclasses
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, Key

from corridor import DEFAULTS as CORRIDOR
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.runner import Task, setting
from ppo_mask.training import Metric


class Marathon(AbstractEnv[tuple[Int[Array, ""], Int[Array, ""]]]):
    """Right or stay; +1 at the right end. Begins at 0, or in a cell drawn by the weights."""

    starting_weights: Float[Array, "3"] | None = None
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key: Key[Array, ""]) -> tuple[tuple[Array, Array], TimeStep]:
        start = jnp.int32(0)
        if self.starting_weights is not None:
            start = jax.random.categorical(key, jnp.log(self.starting_weights)).astype(jnp.int32)
        return (start, start), self._show(start, start)

    def step(
        self, key: Key[Array, ""], state: tuple[Array, Array], action: Int[Array, ""]
    ) -> tuple[tuple[Array, Array], TimeStep]:
        slip = jax.random.bernoulli(key, 0.1)
        start, position = state
        position = jnp.minimum(position + jnp.where(slip, 0, action), 3)
        return (start, position), self._show(start, position)

    def _show(self, start: Array, position: Array) -> TimeStep:
        done = position == 3
        return TimeStep(
            observation=jax.nn.one_hot(position, 4),
            action_mask=jnp.ones(2, bool),
            reward=jnp.where(done, 1.0, 0.0),
            terminated=done,
            truncated=jnp.zeros((), bool),
            info={"start": start},
        )


class Starts(eqx.Module):
    weights: Float[Array, "3"]

    def __call__(self, env: AbstractEnv[Any], progress: Float[Array, ""]) -> Marathon:
        return dataclasses.replace(cast(Marathon, env), starting_weights=self.weights)


@dataclasses.dataclass(frozen=True)
class MarathonSettings:
    """The marathon, and how often it begins in each cell."""

    far: float | Float[Array, ""] = setting(1.0, "in cell 0", at_least=0, phased=True)
    middle: float | Float[Array, ""] = setting(0.0, "in cell 1", at_least=0, phased=True)
    near: float | Float[Array, ""] = setting(0.0, "in cell 2", at_least=0, phased=True)


TASK = Task[MarathonSettings](
    lambda settings: Marathon(),
    metrics={
        "stats/start": Metric(lambda action, info: info["start"], over="episodes"),
        "stats/latest_start": Metric(
            lambda action, info: info["start"], over="episodes", reduce="max"
        ),
    },
    curriculum=lambda each: Starts(
        jnp.stack([*map(jnp.float32, (each.far, each.middle, each.near))])
    ),
)
DEFAULTS = dataclasses.replace(CORRIDOR, environment=MarathonSettings())
