"""A curriculum with a memory, and a training run of it. As a program: on two devices, in JSON."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array

from marathon import Marathon
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs import AbstractEnv
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import AbstractCurriculum, Callback, Trainer, TrainState

CONFIG = PPO(num_envs=8, num_steps=8, num_minibatches=2, update_epochs=1)


class EvenStarts(AbstractCurriculum):
    """Begins near the end at first, and then where fewer episodes have ended so far.

    Remembers that, and the steps seen.
    """

    def init(self, model: Any) -> ArrayTree:
        return {"ends": jnp.zeros(3), "steps": jnp.int32(0)}

    def update(self, memory: Any, info: Mapping[str, Array], ended: Array) -> ArrayTree:
        ends = jax.nn.one_hot(info["start"], 3) * ended[..., None]
        return {"ends": memory["ends"] + ends.sum((0, 1)), "steps": memory["steps"] + ended.size}

    def __call__(self, env: AbstractEnv[Any], progress: Array, memory: Any) -> Marathon:
        start = jnp.where(progress < 0.5, 2, jnp.argmin(memory["ends"]))
        weights = jax.nn.one_hot(start, 3)
        return dataclasses.replace(cast(Marathon, env), starting_weights=weights)


def train(updates: int, callbacks: Sequence[Callback] = (), **changes: Any) -> TrainState:
    trainer = Trainer(Marathon(), CONFIG, curriculum=EvenStarts(), **changes)
    model = MLPActorCritic(4, 2, 8, 1, key=jax.random.key(0))
    state = trainer.init(model, jax.random.key(1))
    steps = updates * CONFIG.batch_size
    return trainer.train(state, steps, callbacks=callbacks, log_interval=2)


if __name__ == "__main__":
    memory = train(12, mesh=make_mesh(2)).memory
    print(json.dumps(jax.tree.map(lambda x: x.tolist(), memory)))
