"""What environments give that is out of the ordinary. A report is one more line of a table."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.envs._shapes import shapes_of
from ppo_mask.networks import as_model, forward
from ppo_mask.training._metrics import add_steps, no_steps, summarize

LOW = [jnp.bfloat16, jnp.float16, jnp.float8_e4m3fn]
FLOATS = [*LOW, jnp.float32]
OTHERS = [jnp.int8, jnp.uint8, jnp.int32, jnp.uint32, jnp.bool_, jnp.int4, jnp.uint4]
STEPS = 300  # In bfloat16 256 + 1 is 256.


class Odd(pm.AbstractEnv[jax.Array]):
    """An episode of so many steps, each of which gives the same."""

    reward: Any = 1.0
    observation: Any = 1.0
    info: Any = eqx.field(default_factory=dict)
    length: int = eqx.field(static=True, default=STEPS)
    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return jnp.int32(0), self._show(False)

    def step(self, key, state, action):
        return state + 1, self._show(state + 1 >= self.length)

    def _show(self, ended):
        mask = jnp.ones(2, bool)
        return pm.TimeStep(self.observation, mask, self.reward, ended, False, self.info)


class Shown(pm.AbstractActorCritic):
    """Looks at nothing; gives its value in a type of its own."""

    value: jax.Array
    dtype: Any = eqx.field(static=True, default=jnp.float32)

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        logits = jnp.zeros(2, self.dtype) + self.value.astype(self.dtype)
        return pm.MaskedCategorical(logits, action_mask), self.value.astype(self.dtype)


@pytest.mark.parametrize("dtype", LOW)
def test_rewards_and_infos_of_few_bits_are_summed_in_float32(dtype):
    facts = {jnp.dtype(each).name: jnp.ones((), each) for each in [*FLOATS, *OTHERS]}
    env = pm.VectorEnv(Odd(jnp.ones((), dtype), info=facts), 2)
    metrics = {name: pm.Metric(lambda a, i, name=name: i[name]) for name in facts}

    @jax.jit
    def play(key):
        def step(carry, _):
            (state, totals), actions = carry, jnp.zeros(2, jnp.int32)
            state, timestep = env.step(key, state, actions)
            return (state, add_steps(totals, metrics, actions, timestep, jnp.ones(2, bool))), None

        start = env.reset(key)[0], no_steps(metrics)
        return jax.lax.scan(step, start, None, STEPS)[0][1]

    values = summarize(play(jax.random.key(0)))
    assert values["eval/mean_episode_return"] == STEPS
    assert values["eval/mean_reward"] == 1
    assert {name: values[name] for name in facts} == dict.fromkeys(facts, 1)


@pytest.mark.parametrize(
    "reward", [1.0, 1, True, np.float32(1), jnp.int8(1), jnp.uint8(1), jnp.bool_(1)]
)
def test_numbers_of_python_and_numpy_and_integers_will_do(reward):
    timestep = Odd(reward, info={"x": 2}).reset(jax.random.key(0))[1]
    assert timestep.reward.dtype == jnp.float32
    assert (timestep.info["x"].dtype, timestep.info["x"].weak_type) == (jnp.int32, False)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_values_of_few_bits_are_learned_in_float32(dtype):
    # In 16 bits the mean of so many squared errors is one of 256 numbers.
    rows = 1000
    decision = pm.acting.Decision(
        observation=jnp.ones(rows),
        action_mask=jnp.ones((rows, 2), bool),
        action=jnp.zeros(rows, jnp.int32),
        log_prob=jnp.full(rows, jnp.log(0.5)),
        value=jnp.zeros(rows),
    )
    batch = pm.training.Batch(decision, jnp.zeros(rows), return_=jnp.linspace(0, 1, rows))
    model = as_model(Shown(jnp.float32(1 / 3), dtype))
    _, metrics = jax.jit(lambda: pm.ppo.ppo_loss(model, batch, pm.PPO()))()
    exact = np.float64(jnp.asarray(1 / 3, dtype))
    expected = 0.5 * np.mean((exact - np.linspace(0, 1, rows)) ** 2)
    np.testing.assert_allclose(metrics["vf_loss"], expected, rtol=1e-5)
    one = jnp.ones(1), jnp.ones(2, bool), ()
    _, value, _ = jax.eval_shape(lambda: model.advance(*one))
    _, values = jax.eval_shape(
        lambda: forward(model, decision.observation, decision.action_mask, None)
    )
    assert value.dtype == values.dtype == jnp.float32


@pytest.mark.parametrize("dtype", LOW)
def test_what_is_estimated_of_few_bits_is_float32(dtype):
    rows, no = jnp.ones((4, 1), dtype), jnp.zeros((4, 1), bool)
    advantage = jax.eval_shape(
        lambda: pm.ppo.estimate_advantages(rows, rows, rows, no, no, 0.99, 0.95)
    )
    scaler, reward = jax.eval_shape(lambda: pm.acting.RewardScaler(1).scale(rows, no, 0.99))
    assert {x.dtype for x in jax.tree.leaves((advantage, scaler, reward))} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("network", "more"),
    [
        ("mlp", {}),
        ("gru", {"normalize_observations": True, "normalize_rewards": True}),
        ("conv", {"normalize_observations": True, "precision": "bfloat16"}),
    ],
)
def test_default_networks_take_numbers_of_any_width(network, more):
    shown = {jnp.dtype(dtype).name: jnp.ones(2, dtype) for dtype in [*FLOATS, *OTHERS]}
    env = Odd(jnp.bfloat16(1), shown | {"board": jnp.ones((6, 7, 2), bool)}, length=4)
    trainer = pm.Trainer(env, pm.PPO(4, 2, **more))

    def begin(key):
        return trainer.init(pm.network_for(env, network, hidden_dim=4, key=key), key)

    state = eqx.filter_eval_shape(begin, jax.random.key(0))
    state, _ = eqx.filter_eval_shape(trainer.run_updates, state, jnp.int32(1), jnp.int32(1))
    wide = [x.dtype for x in jax.tree.leaves((state.model, state.own.reward_scaler))]
    assert set(wide) <= {np.dtype(np.float32), np.dtype(np.int32)}


def test_gymnasium_spaces_hold_observations_of_any_type_of_numpy():
    # Rewards and infos are of few bits, too.
    dtypes = [dtype for dtype in map(jnp.dtype, [*FLOATS, *OTHERS]) if dtype.kind != "V"]
    assert len(dtypes) == 7
    facts = {dtype.name: jnp.ones((2, 3), dtype) for dtype in dtypes}
    few = {jnp.dtype(each).name: jnp.ones((), each) for each in [*FLOATS, *OTHERS]}
    env = Odd(jnp.bfloat16(1), facts, few, length=2)
    envs = ToGymnasiumVector(env, 3)
    observation, _ = envs.reset(seed=0)
    assert observation in envs.observation_space
    for _ in range(2):
        observation, reward, *_, info = envs.step(np.zeros(3, int))
        assert observation in envs.observation_space
        assert (reward == 1).all()
    assert info["final_obs"][0] in envs.single_observation_space
    assert {x.dtype.kind for x in observation.values()} <= set("fiub")


DOORS = pm.envs.probes.MaskedDoors()


@pytest.mark.parametrize(
    "env",
    [pm.TimeLimit(DOORS, 2), pm.MultiTask([DOORS, pm.envs.probes.MaskedDoors(length=2)])],
    ids=lambda env: type(env).__name__,
)
def test_wrappers_pass_an_action_of_several_parts_on(env):
    assert env.num_actions == (4, 6, 6)
    state, key = shapes_of(env).state, jax.random.key(0)
    for make in (jnp.array, np.array):
        jax.eval_shape(lambda state, make=make: env.step(key, state, make([1, 2, 3])), state)
    with pytest.raises(ValueError, match=r"action is int32\[2\], not int32\[3\]"):
        jax.eval_shape(lambda state: env.step(key, state, jnp.zeros(2, int)), state)


def test_a_vector_takes_an_action_of_all_parts_in_each():
    def step(env, *shape):
        key = jax.random.key(0)
        return jax.eval_shape(lambda: env.step(key, env.reset(key)[0], jnp.zeros(shape, int)))

    doors, locks = pm.VectorEnv(DOORS, 5), pm.VectorEnv(pm.envs.probes.MaskedLocks(keys=2), 5)
    assert step(doors, 5, 3)[1].reward.shape == (5,)
    for wrong in ((5,), (5, 2)):
        with pytest.raises(ValueError, match=r"not \[5, 3\]: there are 4 x 6 x 6 actions"):
            step(doors, *wrong)
    with pytest.raises(ValueError, match=r"not \[5\]: there are 4 actions"):
        step(locks, 5, 3)


def test_a_run_says_once_that_it_normalizes_nothing(capsys):
    config = pm.PPO(num_envs=4, num_steps=4, normalize_observations=True)
    trainer = pm.Trainer(Odd(observation=jnp.zeros(1, jnp.int32)), config).with_values()
    model = as_model(pm.MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    state = eqx.filter_eval_shape(trainer.first_state, model, jax.random.key(1))
    assert capsys.readouterr().err.count("normalize_observations does nothing") == 1
    one = jnp.int32(1)
    eqx.filter_eval_shape(trainer.run_updates, state, one, one)
    assert capsys.readouterr().err == ""
