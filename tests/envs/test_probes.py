"""PPO finds the answers that are known on paper, and plays CartPole."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import programs
from environments import CartPole
from ppo_mask.envs import AbstractEnv, MultiTask, probes
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import Trainer, evaluate

GAMMA = 0.8
NUMBERS = {"learning_rate": 1e-2, "gamma": GAMMA, "ent_coef": 0.01, "max_grad_norm": 5.0}


class Named(AbstractEnv):
    """Several environments as one, which shows which of them it is."""

    env: MultiTask
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return self._named(*self.env.reset(key))

    def step(self, key, state, action):
        return self._named(*self.env.step(key, state, action))

    def _named(self, state, timestep):
        name = jax.nn.one_hot(timestep.info["task"], len(self.env.envs))
        observation = jnp.append(timestep.observation, name)
        return state, dataclasses.replace(timestep, observation=observation)


KNOWN = [
    (probes.ConstantValue(), {1: 1, -1: 1}, {}),
    (probes.ObservationValue(), {1: 1, -1: -1}, {}),
    (probes.Discounting(), {0: GAMMA, 1: 1}, {}),
    (probes.EndlessOrOver(truncates=False), {1: 1}, {}),
    (probes.EndlessOrOver(truncates=True), {1: 1 / (1 - GAMMA)}, {}),
    (probes.ActionValue(), {1: 1, -1: 1}, {1: 1, -1: 1}),
    (probes.MatchObservation(), {1: 1, -1: 1}, {1: 1, -1: 0}),
]
"""Environments, with the values and the best actions of what they show."""


def test_values_and_policies_known_on_paper():
    """All by one network, in one program."""
    env = Named(MultiTask([env for env, _, _ in KNOWN]))
    config = PPO(num_envs=64, num_steps=16, anneal_lr=True, **NUMBERS)
    model = MLPActorCritic(1 + len(KNOWN), 2, 16, 1, key=jax.random.key(0))
    trainer = Trainer(env, config)
    start = trainer.init(model, jax.random.key(1))
    model = trainer.train(start, 150 * config.batch_size).model
    see = jax.jit(lambda seen: (lambda d, v: (d.probs, v))(*model(seen, jnp.ones(2, bool))))
    for task, (probe, values, best) in enumerate(KNOWN):
        for observation, value in values.items():
            probs, found = see(np.float32([observation, *np.eye(len(KNOWN))[task]]))
            slack = 0.2 if best else 0.1  # A policy that still explores gets less.
            assert found == pytest.approx(value, abs=slack), (probe, observation)
            assert observation not in best or probs[best[observation]] > 0.9, (probe, observation)


def test_locks_are_opened_with_the_mask():
    _, history = programs.locks().train(300, log_interval=20, **NUMBERS)
    assert history.records[-1].values["train/mean_episode_return"] > 4.5
    assert history.records[-1].values["train/mean_episode_length"] == 5


NORMALIZED = {"normalize_observations": True, "normalize_rewards": True}


@pytest.mark.optimized
@pytest.mark.parametrize(
    ("seed", "how"), [(0, {}), (2, NORMALIZED | {"precision": "bfloat16"})], ids=["plain", "all"]
)
def test_cart_pole_is_solved_within_500_000_steps(how, seed):
    env = CartPole()
    # On 120 seeds the lowest mean is 495; with half the rate it is 443, with 16 environments 424.
    config = PPO(num_envs=32, num_steps=64, learning_rate=2e-3, anneal_lr=True, ent_coef=0.0, **how)
    model_key, key, evaluation_key = jax.random.split(jax.random.key(seed), 3)
    # Without layer norm the value saturates once all is well, and what was learned is lost again on
    # about every second seed.
    model = MLPActorCritic(4, 2, 64, 2, layer_norm=True, key=model_key)
    trainer = Trainer(env, config)
    state = trainer.train(trainer.init(model, key), 490_000)
    for greedy in (True, False):
        result = evaluate(state.model, env, evaluation_key, 100, greedy=greedy)
        assert result.mean_return >= 450
