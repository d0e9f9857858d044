"""What environments give that is out of the ordinary. A report is one more line of a table."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector

STEPS = 1000


class Odd(pm.AbstractEnv[jax.Array]):
    """An episode of so many steps, each of which gives the same."""

    reward: Any
    observation: Any
    info: Any
    length: int = eqx.field(static=True, default=STEPS)
    num_actions: int = eqx.field(static=True, default=2)

    def __init__(self, reward=None, observation=None, info=None, length=STEPS):
        self.reward = jnp.float32(1) if reward is None else reward
        self.observation = jnp.ones(2) if observation is None else observation
        self.info = info or {}
        self.length, self.num_actions = length, 2

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.bool_(False))

    def step(self, key, state, action):
        return state + 1, self._show(state + 1 >= self.length)

    def _show(self, ended):
        return pm.TimeStep(
            self.observation, jnp.ones(2, bool), self.reward, ended, jnp.bool_(False), self.info
        )


class Model(pm.AbstractActorCritic):
    """Looks at nothing; gives its value in a type of its own."""

    value: jax.Array
    dtype: Any = eqx.field(static=True, default=jnp.float32)

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        logits = jnp.zeros(2, self.dtype) + self.value.astype(self.dtype)
        return pm.MaskedCategorical(logits, action_mask), self.value.astype(self.dtype)


def train(env, model=None, updates=2, **config):
    """The last log line of a training in which every environment ends one episode."""
    config = pm.PPOConfig(
        num_envs=2, num_steps=STEPS // 2, num_minibatches=1, update_epochs=1, **config
    )
    metrics = {name: pm.Metric(lambda a, i, name=name: i[name]) for name in env.info}
    trainer, history = pm.Trainer(env, config, metrics=metrics), pm.History()
    state = trainer.init(Model(jnp.zeros(())) if model is None else model, jax.random.key(0))
    state = trainer.train(state, updates * STEPS, callbacks=[history])
    return history.records[-1].values, state


LOW = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn]


@pytest.mark.parametrize("dtype", LOW)
def test_rewards_of_few_bits_are_summed_in_float32(dtype):
    env = Odd(reward=jnp.asarray(1, dtype))
    values, state = train(env, normalize_rewards=True)
    assert values["train/mean_episode_return"] == STEPS
    assert values["train/mean_reward"] == 1
    assert all(x.dtype != dtype for x in jax.tree.leaves(eqx.filter(state, eqx.is_inexact_array)))
    result = pm.evaluate(Model(jnp.zeros(())), env, jax.random.key(0), 2)
    assert result.mean_return == STEPS
    assert result.values["eval/mean_reward"] == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [*LOW, jnp.int8, jnp.uint8, jnp.bool_, jnp.int32])
def test_infos_of_few_bits_are_summed_in_float32(dtype):
    values, _ = train(Odd(info={"fact": jnp.asarray(1, dtype)}))
    assert values["fact"] == 1
    env = Odd(info={"fact": jnp.asarray(1, dtype)}, length=3)
    result = pm.evaluate(Model(jnp.zeros(())), env, jax.random.key(0), 2)
    assert result.final_info["fact"].tolist() == [1, 1]


@pytest.mark.parametrize(
    "reward", [1.0, 1, True, np.float32(1), jnp.int8(1), jnp.uint8(1), jnp.bool_(1)]
)
def test_rewards_of_python_and_of_integers_are_summed_in_float32(reward):
    assert Odd(reward=reward).reset(jax.random.key(0))[1].reward.dtype == jnp.float32
    values, _ = train(Odd(reward=reward))
    assert values["train/mean_episode_return"] == STEPS


def test_a_reward_of_many_numbers_is_refused():
    with pytest.raises(pm.envs.ProtocolError, match="reward"):
        Odd(reward=jnp.ones(1)).reset(jax.random.key(0))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_values_of_few_bits_are_learned_in_float32(dtype):
    # In 16 bits the mean of so many squared errors is one of 256 numbers.
    model = Model(jnp.asarray(1 / 3, jnp.float32), dtype)
    values, state = train(Odd(), model, learning_rate=0.0)
    exact = float(jnp.asarray(1 / 3, dtype))
    reference, _ = train(Odd(), Model(jnp.float32(exact)), learning_rate=0.0)
    assert values["train/vf_loss"] == pytest.approx(reference["train/vf_loss"], rel=1e-6)
    assert state.model.value.dtype == jnp.float32


def test_estimates_of_bfloat16_are_float32():
    rows = jnp.ones((4, 1), jnp.bfloat16)
    no = jnp.zeros((4, 1), bool)
    advantage = pm.ppo.estimate_advantages(rows, rows, rows, no, no, 0.99, 0.95)
    assert advantage.dtype == jnp.float32


FLOATS = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn, jnp.float32]
OTHERS = [jnp.int8, jnp.uint8, jnp.int32, jnp.uint32, jnp.bool_, jnp.int4, jnp.uint4]


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("network", [pm.MLPActorCritic, pm.GRUActorCritic])
@pytest.mark.parametrize("normalized", [False, True])
def test_default_networks_take_floats_of_any_width(dtype, network, normalized):
    env = Odd(observation=jnp.ones(2, dtype), length=4)
    model = network.for_env(env, hidden_dim=4, key=jax.random.key(0))
    trainer = pm.Trainer(
        env, pm.PPOConfig(num_envs=4, num_steps=2, normalize_observations=normalized)
    )
    state = trainer.init(model, jax.random.key(1))
    learner = eqx.filter_eval_shape(trainer.run_updates, state, jnp.int32(1), jnp.int32(1))
    assert all(
        x.dtype == jnp.float32
        for x in jax.tree.leaves(eqx.filter(learner[0].model, lambda x: hasattr(x, "dtype")))
    )


@pytest.mark.parametrize("dtype", OTHERS)
def test_default_network_takes_what_is_no_float(dtype):
    env = Odd(observation=jnp.ones(2, dtype))
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    distribution, value = model(jnp.ones(2, dtype), jnp.ones(2, bool))
    assert (distribution.probs.dtype, value.dtype) == (jnp.float32, jnp.float32)
    flat = pm.FlatObservation(env)
    assert flat.reset(jax.random.key(0))[1].observation.dtype == jnp.float32


@pytest.mark.parametrize("dtype", [*FLOATS, *OTHERS])
def test_gymnasium_spaces_hold_observations_of_any_type(dtype):
    # The reward and the info are of that type, too, where they may be.
    reward = jnp.asarray(1, dtype if jnp.issubdtype(dtype, jnp.floating) else jnp.float32)
    env = Odd(reward, {"grid": jnp.ones((2, 3), dtype)}, {"fact": jnp.asarray(1, dtype)}, length=2)
    one, several = ToGymnasium(env), ToGymnasiumVector(env, 3)
    for each, action in ((one, 0), (several, np.zeros(3, int))):
        observation, _ = each.reset(seed=0)
        assert observation in each.observation_space
        for _ in range(2):
            observation, reward, *_, info = each.step(action)
            assert observation in each.observation_space
            assert np.all(np.asarray(reward) == 1)
    assert info["final_obs"][0] in several.single_observation_space
    assert observation["grid"].dtype.kind in "fiub"
