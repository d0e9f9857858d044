"""Rock, paper, scissors against a network, and a run of self-play. As a program: on two devices."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, Key

from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import SelfPlay, Trainer, TrainState

CONFIG = PPOConfig(
    num_envs=8,
    num_steps=8,
    num_minibatches=2,
    update_epochs=1,
    learning_rate=0.03,
    normalize_observations=True,  # The copy has its own statistics.
)
EVERY = 3


class Duel(AbstractEnv[Int[Array, ""]]):
    """One of three things each, at once; the first is forbidden at times. Without an opponent the
    other side always takes the first.
    """

    opponent: AbstractActorCritic | None = None
    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, TimeStep]:
        forbidden = jax.random.randint(key, (), 0, 3).astype(jnp.int32)
        return forbidden, self._show(forbidden, jnp.float32(0), False)

    def step(self, key: Key[Array, ""], state: Array, action: Any) -> tuple[Array, TimeStep]:
        theirs = jnp.int32(0)
        if self.opponent is not None:
            shown = self._show(state, jnp.float32(0), False)
            distribution, _ = self.opponent(shown.observation, shown.action_mask)
            theirs = distribution.sample(key)
        reward = jnp.array([0.0, 1.0, -1.0])[(action - theirs) % 3]
        return state, self._show(state, reward, True)

    def _show(self, forbidden: Array, reward: Array, done: bool) -> TimeStep:
        mask = (jnp.arange(3) > 0) | (forbidden > 0) | done
        return TimeStep(
            observation=jax.nn.one_hot(forbidden, 3),
            action_mask=mask,
            reward=reward,
            terminated=jnp.array(done),
            truncated=jnp.array(False),
            info={},
        )


def find_opponent(env: Any) -> Any:
    return env.opponent


def make_model(key: Array) -> MLPActorCritic:
    return MLPActorCritic(3, 3, 8, 1, key=key)


def train(
    updates: int, state: TrainState | None = None, every: int = EVERY, **changes: Any
) -> TrainState:
    trainer = Trainer(Duel(), CONFIG, curriculum=SelfPlay(find_opponent, every), **changes)
    if state is None:
        state = trainer.init(make_model(jax.random.key(0)), jax.random.key(1))
    return trainer.train(state, updates * CONFIG.batch_size)


def numbers(tree: Any) -> list[Any]:
    """All arrays of a tree as lists, keys as their numbers."""
    arrays = jax.tree.leaves(eqx.filter(tree, eqx.is_array))
    return [_number(x).tolist() for x in arrays]


def _number(x: Array) -> Array:
    return jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x


if __name__ == "__main__":
    state = train(7, mesh=make_mesh(2))
    print(json.dumps({"memory": numbers(state.memory), "model": numbers(state.model)}))
