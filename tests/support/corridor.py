"""A small environment with a mask, and a program that trains on it: for tests of whole runs."""

import dataclasses

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import Metric


class Corridor(AbstractEnv[Int[Array, ""]]):
    """Left, right or stay; +1 at the right end. There is no way left at the left end."""

    length: int = 6
    num_actions: int = 3

    def __check_init__(self) -> None:
        if self.length > 100:
            raise ValueError(f"a corridor of {self.length} is too long, at most 100")

    def reset(self, key: Key[Array, ""]) -> tuple[Int[Array, ""], TimeStep]:
        position = jax.random.randint(key, (), 0, self.length - 1)
        return position, self._show(position, jnp.zeros(()))

    def step(
        self, key: Key[Array, ""], state: Int[Array, ""], action: Int[Array, ""]
    ) -> tuple[Int[Array, ""], TimeStep]:
        slip = jax.random.bernoulli(key, 0.1)
        position = jnp.maximum(state + jnp.where(slip, 0, action - 1), 0)
        return position, self._show(position, jnp.where(position == self.length - 1, 1.0, -0.01))

    def _show(self, position: Int[Array, ""], reward: Array) -> TimeStep:
        done = position == self.length - 1
        return TimeStep(
            observation=jax.nn.one_hot(position, self.length),
            action_mask=jnp.array([False, True, True]) | (position > 0),
            reward=reward,
            terminated=done,
            truncated=jnp.zeros((), bool),
            info={"arrived": done, "position": position},
        )


@dataclasses.dataclass(frozen=True)
class CorridorSettings:
    """The corridor."""

    length: int = setting(6, "cells", at_least=2)


TASK = Task(
    lambda settings: Corridor(settings.length),
    metrics={
        "stats/arrived": Metric(lambda action, info: info["arrived"], over="episodes"),
        "stats/furthest": Metric(lambda action, info: info["position"], reduce="max"),
    },
    console_columns={"furthest": "stats/furthest"},
)
DEFAULTS = RunConfig(
    environment=CorridorSettings(),
    algorithm=PPO(num_envs=8, num_steps=4, learning_rate=3e-3),
    network=NetworkSettings(hidden_dim=8, num_layers=1),
    run=RunSettings(total_timesteps=32 * 6),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
