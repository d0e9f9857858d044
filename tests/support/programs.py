"""Trainers that tests share, so that a process compiles each of them once.

A test that needs something that trains takes one of these. Callbacks, the number of updates, log
intervals, seeds and hyperparameters that are numbers are its own; none of them compiles anything.
Another shape is another program, and a test that wants one says why.
"""

import dataclasses
from collections.abc import Callable, Sequence
from functools import cache, cached_property
from typing import Any

import equinox as eqx
import jax

import ppo_mask as pm
from ppo_mask.envs.probes import MaskedDoors, MaskedLocks

METRICS = {
    "actions/first": pm.Metric(lambda action, info: action.reshape(-1)[0] == 0),
    "actions/last": pm.Metric(lambda action, info: action.reshape(-1)[-1], reduce="max"),
}
SIZES: dict[str, Any] = {
    "num_envs": 8,
    "num_steps": 8,
    "num_minibatches": 2,
    "update_epochs": 2,
    "learning_rate": 1e-3,
    "anneal_lr": True,
}
EVERYTHING: dict[str, Any] = {
    "normalize_observations": True,
    "normalize_rewards": True,
    "clip_value": True,
    "target_kl": 1.0,
    "gradient_accumulation": 2,
}


@dataclasses.dataclass(frozen=True)
class Program:
    """A trainer, and states of it. ``train`` leaves the states that it is given as they are."""

    trainer: pm.Trainer
    make_model: Callable[[jax.Array], pm.Model | pm.AbstractActorCritic]

    @property
    def env(self) -> Any:
        return self.trainer.env

    @property
    def config(self) -> pm.PPO:
        algorithm = self.trainer.algorithm
        assert isinstance(algorithm, pm.PPO)
        return algorithm

    @cached_property
    def start(self) -> pm.TrainState:
        """Before the first update."""
        return self.trainer.init(self.make_model(jax.random.key(0)), jax.random.key(1))

    @cached_property
    def seeds(self) -> pm.TrainState:
        """Two seeds before the first update, in one state."""
        keys = jax.random.split(jax.random.key(3), 2)

        def begin(key: jax.Array) -> pm.TrainState:
            model_key, init_key = jax.random.split(key)
            return self.trainer.init(self.make_model(model_key), init_key)

        return eqx.filter_jit(eqx.filter_vmap(begin))(keys)

    def steps(self, updates: int) -> int:
        """The environment steps of so many updates."""
        return updates * self.config.batch_size

    def with_config(self, **changes: Any) -> pm.Trainer:
        """The trainer with other hyperparameters; those that are numbers compile nothing."""
        config = dataclasses.replace(self.config, **changes)
        return eqx.tree_at(lambda trainer: trainer.algorithm, self.trainer, config)

    def train(
        self,
        updates: int,
        state: pm.TrainState | None = None,
        callbacks: Sequence[pm.Callback] = (),
        log_interval: int = 1,
        **changes: Any,
    ) -> tuple[pm.TrainState, pm.History]:
        """Trains until there were so many updates, and gives the state and this call's log lines.

        ``changes`` are those of the config.
        """
        history = pm.History()
        state = self.with_config(**changes).train(
            self.start if state is None else state,
            self.steps(updates),
            callbacks=[*callbacks, history],
            log_interval=log_interval,
        )
        return state, history


def program(
    env: Any,
    make_model: Callable[[jax.Array], pm.Model | pm.AbstractActorCritic] | None = None,
    metrics: Any = METRICS,
    **config: Any,
) -> Program:
    """One more, for tests of a module that want another environment or another shape."""

    def make_mlp(key: jax.Array) -> pm.Model:
        return pm.network_for(env, "mlp", hidden_dim=8, num_layers=1, key=key)

    trainer = pm.Trainer(env, pm.PPO(**(SIZES | config)), metrics=metrics)
    return Program(trainer, make_model or make_mlp)


@cache
def locks() -> Program:
    """Masks, and episodes of five steps that cross the borders of rollouts."""
    return program(MaskedLocks(length=5, keys=4))


@cache
def doors() -> Program:
    """MultiDiscrete actions, episodes of three steps, and all that can be switched on."""
    return program(MaskedDoors(length=3), **EVERYTHING)


@cache
def gru() -> Program:
    """The locks, and a network with a memory."""
    env = locks().env
    return program(env, lambda key: pm.network_for(env, "gru", hidden_dim=8, key=key))


@cache
def host() -> Program:
    """A card game in Python, with several numbers in an observation."""
    from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
    from python_games import Climb

    return program(GymnasiumEnv(Climb, infos=["cards"]))


@cache
def game() -> Program:
    """HackMatrix, whose games are cut off after nine actions, with a small network."""
    from hackmatrix import HackMatrix
    from hackmatrix.networks import player_centered_mlp
    from hackmatrix.task import METRICS

    env = HackMatrix(max_steps=9, compact=True)
    return program(env, lambda key: player_centered_mlp(8, 1, key=key), METRICS)
