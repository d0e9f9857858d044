"""What users write, with types everywhere: for type checkers; nothing runs it."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

import ppo_mask as pm
from ppo_mask.training import static_setting


class Walk(pm.AbstractEnv[jax.Array]):
    """Has a field without a default, and the number of actions after it."""

    length: int
    num_actions: tuple[int, int] = (2, 3)

    def reset(self, key: jax.Array) -> tuple[jax.Array, pm.TimeStep]:
        return key, pm.TimeStep(jnp.ones(2), jnp.ones(5, bool), 1, True, False, {"a": 1.0})

    def step(
        self, key: jax.Array, state: jax.Array, action: jax.Array
    ) -> tuple[jax.Array, pm.TimeStep]:
        return self.reset(key)


class Algorithm(pm.AbstractAlgorithm):
    """Has a field without a default, too."""

    rate: float
    num_envs: int = static_setting(8, "environments side by side", at_least=1)
    num_steps: int = static_setting(4, "steps of each environment", at_least=1)

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        return model, own, {}


class Logging(pm.Callback):
    def on_log(self, run: pm.training.Run, record: pm.training.LogRecord) -> None:
        run.log({"mine/number": jnp.float32(1)})


def train(lengths: Sequence[int]) -> float:
    env = pm.MultiTask([Walk(length) for length in lengths])
    trainer = pm.Trainer(env, Algorithm(0.5))
    network = pm.MLPActorCritic(2, 5, hidden_dim=8, num_layers=1, key=jax.random.key(0))
    state = trainer.init(network, jax.random.key(1))
    state = trainer.train(state, 100, callbacks=[pm.History(), Logging()])
    return pm.evaluate(pm.Policy(network), env, jax.random.key(0), 5).mean_return
