"""A program whose task has an algorithm of its own."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import optax

from corridor import DEFAULTS, TASK
from ppo_mask.ppo import Algorithm
from ppo_mask.runner import RunConfig, merge, resolve
from ppo_mask.runner._task import make_trainer


def test_settings_reach_it() -> None:
    def algorithm(config: RunConfig[Any]) -> Algorithm:
        return Algorithm(optax.sgd(config.ppo.learning_rate, momentum=0.9))

    task = dataclasses.replace(TASK, algorithm=algorithm)
    config = resolve(merge(DEFAULTS, {"learning_rate": 0.25}))
    trainer = make_trainer(task, config, TASK.make_env(config.environment), None, None)
    optimizer = trainer.algorithm.optimizer  # pyright: ignore
    updates, _ = optimizer.update(jnp.ones(()), optimizer.init(jnp.zeros(())))
    assert updates == -0.25
