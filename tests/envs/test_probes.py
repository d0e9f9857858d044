"""PPO finds the answers that are known on paper, and plays CartPole."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import CartPole
from ppo_mask.envs import AbstractEnv, probes
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import Trainer, evaluate

_GAMMA = 0.8
_CONFIG = PPOConfig(
    num_envs=16,
    num_steps=16,
    learning_rate=1e-2,
    anneal_lr=True,
    gamma=_GAMMA,
    ent_coef=0.01,
    max_grad_norm=5.0,
)


def _learn(env, num_updates=60, config=_CONFIG):
    model = MLPActorCritic(1, env.num_actions, 16, 1, key=jax.random.key(0))
    return (
        Trainer(env, config)
        .train(Trainer(env, config).init(model, jax.random.key(1)), num_updates * config.batch_size)
        .model
    )


def _see(model, observation, num_actions=2):
    distribution, value = model(jnp.array([observation], jnp.float32), jnp.ones(num_actions, bool))
    return np.array(distribution.probs), float(value)


@pytest.mark.parametrize(
    ("env", "values"),
    [
        (probes.ConstantValue(), {1: 1, -1: 1}),
        (probes.ObservationValue(), {1: 1, -1: -1}),
        (probes.Discounting(), {0: _GAMMA, 1: 1}),
        (probes.EndlessOrOver(truncates=False), {1: 1}),
        (probes.EndlessOrOver(truncates=True), {1: 1 / (1 - _GAMMA)}),
    ],
    ids=lambda x: repr(x) if isinstance(x, AbstractEnv) else "",
)
def test_values_known_on_paper(env, values):
    model = _learn(env, 150 if getattr(env, "truncates", False) else 60)
    for observation, value in values.items():
        assert _see(model, observation)[1] == pytest.approx(value, abs=0.1)


@pytest.mark.parametrize(
    ("env", "best"),
    [(probes.ActionValue(), {1: 1, -1: 1}), (probes.MatchObservation(), {1: 1, -1: 0})],
    ids=lambda x: type(x).__name__ if isinstance(x, AbstractEnv) else "",
)
def test_policies_known_on_paper(env, best):
    model = _learn(env)
    for observation, action in best.items():
        probs, value = _see(model, observation)
        assert probs[action] > 0.9
        assert value == pytest.approx(1, abs=0.2)


class _Hiding(AbstractEnv):
    """Another environment, that may tell nobody what is allowed."""

    env: AbstractEnv
    hide: jax.Array
    num_actions: int = eqx.field(static=True)

    def reset(self, key):
        return self._hide(*self.env.reset(key))

    def step(self, key, state, action):
        return self._hide(*self.env.step(key, state, action))

    def _hide(self, state, timestep):
        mask = timestep.action_mask | self.hide
        return state, eqx.tree_at(lambda t: t.action_mask, timestep, mask)


def test_locks_are_opened_with_the_mask_and_not_without():
    results = []
    for hide in (False, True):
        env = _Hiding(probes.MaskedLocks(), jnp.array(hide), 32)
        results.append(evaluate(_learn(env), env, jax.random.key(2), 200, greedy=False))
    with_mask, without = results
    assert with_mask.mean_return > 7.5
    assert (with_mask.episode_length == 8).all()
    assert without.mean_return < 0.5


@pytest.mark.optimized
def test_locks_are_opened_with_bfloat16_too():
    env = probes.MaskedLocks()
    model = _learn(env, config=dataclasses.replace(_CONFIG, precision="bfloat16"))
    result = evaluate(model, env, jax.random.key(2), 200, greedy=False)
    assert result.mean_return > 7.5
    assert (result.episode_length == 8).all()


_HOW = [{}, {"precision": "bfloat16"}, {"normalize_observations": True, "normalize_rewards": True}]


@pytest.mark.optimized
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("how", _HOW, ids=["plain", "bfloat16", "normalized"])
def test_cart_pole_is_solved_within_500_000_steps(how, seed):
    env = CartPole()
    # On 120 seeds the lowest mean is 495; with half the rate it is 443, with 16 environments 424.
    config = PPOConfig(
        num_envs=32, num_steps=64, learning_rate=2e-3, anneal_lr=True, ent_coef=0.0, **how
    )
    model_key, key, evaluation_key = jax.random.split(jax.random.key(seed), 3)
    # Without layer norm the value saturates once all is well, and what was learned is lost again on
    # about every second seed.
    model = MLPActorCritic(4, 2, 64, 2, layer_norm=True, key=model_key)
    num_updates = 490_000 // config.batch_size
    state = Trainer(env, config).train(
        Trainer(env, config).init(model, key), num_updates * config.batch_size
    )
    for greedy in (True, False):
        result = evaluate(state.model, env, evaluation_key, 100, greedy=greedy)
        assert result.mean_return >= 450
