"""Trains on several devices and prints what came of it as JSON; test_sharding.py looks at it.

Run with XLA_FLAGS=--xla_force_host_platform_device_count=8, which has to be set before JAX starts.
"""

import json
import logging
import sys

import jax

from environments import CartPole
from ppo_mask.devices.sharding import make_mesh
from ppo_mask.envs.probes import RememberedCue
from ppo_mask.networks import GRUActorCritic, MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import History, Trainer

_EVERYTHING = {"normalize_observations": True, "normalize_rewards": True, "target_kl": 0.02}


class _Compiled(logging.Handler):
    """Counts how often the training chunk is compiled."""

    def __init__(self):
        super().__init__()
        self._messages = []
        logging.getLogger("jax").addHandler(self)

    def emit(self, record):
        self._messages.append(record.getMessage())

    def count(self):
        logging.getLogger("jax").removeHandler(self)
        return sum(m.startswith("Compiling jit(run_chunk)") for m in self._messages)


def _game(key):
    from hackmatrix import HackMatrix
    from hackmatrix.networks import player_centered_mlp

    return HackMatrix(), player_centered_mlp(hidden_dim=32, key=key)


def _cart_pole(key):
    return CartPole(), MLPActorCritic(4, 2, 32, 2, key=key)


def _cue(key):
    return RememberedCue(delay=4), GRUActorCritic(1, 2, 16, key=key)


def curves(make, counts, config):
    """By number of devices: the log lines of 20 updates, and how the state lies at the end."""
    out = {}
    for count in counts:
        model_key, key = jax.random.split(jax.random.key(1))
        env, model = make(model_key)
        history, compiled = History(), _Compiled()
        state = Trainer(env, config).init(model, key)
        trainer = Trainer(env, config, mesh=make_mesh(count))
        with jax.log_compiles():
            steps = 20 * config.batch_size
            state = trainer.train(state, steps, callbacks=[history], log_interval=4)
        mask = state.rollout.action_mask
        out[count] = {
            "lines": [
                {"update": each.update, **each.values, "train/steps_per_second": 0}
                for each in history.records
            ],
            "compiled": compiled.count(),
            "environments": mask.sharding.shard_shape(mask.shape)[0],
            "parameters": all(x.is_fully_replicated for x in jax.tree.leaves(state.own.opt_state)),
        }
    return out


if __name__ == "__main__":
    small = {"num_envs": 16, "num_steps": 32, "anneal_lr": True}
    parts = {"gradient_accumulation": 4, "num_minibatches": 8}
    runs = {
        "game": (_game, [1, 8], {"num_envs": 16, "num_steps": 16}),
        "all": (_cart_pole, [1, 2, 8], small | _EVERYTHING),
        "recurrent": (_cue, [1, 4], small | {"normalize_observations": True}),
        "parts": (_cart_pole, [1, 4], small | parts),
    }
    make, counts, config = runs[sys.argv[1]]
    print(json.dumps(curves(make, counts, PPO(**config))))
