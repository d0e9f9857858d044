"""A game, and a training run of it with a pool. As a program: on two devices, in JSON."""

import json
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

import ppo_mask as pm
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.games import AbstractGame, Seat, Turn, random_opponent
from ppo_mask.training import SelfPlay


class Reveal(AbstractGame[Any]):
    """Each says a number; the higher one wins. ``info`` has the second one's."""

    num_actions: int = eqx.field(static=True, default=4)
    num_players: int = eqx.field(static=True, default=2)

    def deal(self, key: Any) -> Any:
        return self._turn((jnp.int32(0), jnp.full(2, -1, jnp.int32)))

    def move(self, key: Any, state: Any, action: Any) -> Any:
        player, said = state
        return self._turn((1 - player, said.at[player].set(action)))

    def observe(self, state: Any, player: Any) -> Any:
        return jax.nn.one_hot(player, 2)

    def _turn(self, state: Any) -> Any:
        player, said = state
        is_over = said[1] >= 0
        gain = jnp.where(is_over, jnp.sign(said[0] - said[1]), 0).astype(jnp.float32)
        info = {"second": said[1]}
        return state, Turn(player, jnp.ones(4, bool), jnp.stack([gain, -gain]), is_over, info=info)


CONFIG = pm.PPO(num_envs=16, num_steps=8, num_minibatches=2, update_epochs=1, learning_rate=0.01)


def trainer(**more: Any) -> pm.Trainer:
    env = Seat(Reveal(), random_opponent)
    self_play = SelfPlay(
        lambda env: env.opponent, every=2, size=4, share=0.3, fixed=(random_opponent,)
    )
    return pm.Trainer(env, CONFIG, curriculum=self_play, **more)


def begin(trainer: pm.Trainer, kind: str = "mlp") -> Any:
    sizes: Any = {"hidden_dim": 8} | ({"num_layers": 1} if kind == "mlp" else {})
    model = pm.network_for(trainer.env, kind, key=jax.random.key(0), **sizes)
    return trainer.init(model, jax.random.key(1))


def train(updates: int, **more: Any) -> pm.TrainState:
    made = trainer(**more)
    return made.train(begin(made), updates * CONFIG.batch_size)


if __name__ == "__main__":
    memory: Any = train(12, mesh=make_mesh(2)).memory
    names = ("joined", "games", "points", "elo", "elo_of")
    print(json.dumps({name: getattr(memory, name).tolist() for name in names}))
