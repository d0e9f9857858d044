"""Trains one policy on several tasks of gymnax, which differ in observations and actions.

pip install 'ppo-mask[gymnax]'
python examples/train_tasks.py
python examples/train_tasks.py --tasks CartPole-v1 Acrobot-v1 --total-timesteps 300_000
"""

import dataclasses
from functools import partial
from typing import Any

import jax.numpy as jnp
from jaxtyping import Array

from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.envs import MultiTask
from ppo_mask.ppo import PPO
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import Metric

TASKS = ("CartPole-v1", "Acrobot-v1", "MountainCar-v0")


@dataclasses.dataclass(frozen=True)
class Tasks:
    """The tasks."""

    tasks: tuple[str, ...] = setting(TASKS, "the tasks to train on", one_of=TASKS)


def make_env(settings: Tasks) -> MultiTask:
    """Makes the tasks. Those that are not chosen stay in the observation, and are never sampled.

    So --initial-policy can continue with a policy of other tasks.
    """
    weights = jnp.array([float(name in settings.tasks) for name in TASKS])
    return MultiTask([GymnaxEnv(name) for name in TASKS], weights)


def is_of(number: int, info: dict[str, Array]) -> Array:
    """Whether a step is one of this task."""
    return info["task"] == number


def episode_return(action: Array, info: dict[str, Any]) -> Array:
    """The return of an episode at its end."""
    return info["episode_return"]


RETURNS = {
    f"return/{name}": Metric(episode_return, over="episodes", where=partial(is_of, number))
    for number, name in enumerate(TASKS)
}
"""The mean return of each task, without the others' episodes."""

TASK = Task[Tasks](
    make_env, metrics=RETURNS, console_columns={name: f"return/{name}" for name in TASKS}
)
# A step gives 1 in CartPole and -1 in the others: only normalized rewards are of one size.
ALGORITHM = PPO(
    num_envs=48,
    learning_rate=1e-3,
    anneal_lr=True,
    normalize_observations=True,
    normalize_rewards=True,
)
DEFAULTS = RunConfig(
    Tasks(), ALGORITHM, NetworkSettings(hidden_dim=64), run=RunSettings(total_timesteps=700_000)
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains one policy on several tasks."))
