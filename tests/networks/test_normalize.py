"""Running statistics, and what the learner does with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import CartPole
from ppo_mask.acting import RewardScaler
from ppo_mask.networks import (
    AbstractActorCritic,
    AbstractReader,
    MaskedCategorical,
    MLPActorCritic,
    Model,
    add_normalization,
    as_model,
    trainable,
    update_statistics,
)
from ppo_mask.networks._moments import RunningMoments
from ppo_mask.ppo import PPO
from ppo_mask.training import Trainer

update_moments = jax.jit(RunningMoments.update)


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("cuts", [[], [1, 300, 700], list(range(100, 1000, 100))])
def test_moments_do_not_depend_on_how_arrays_are_batched(offset, cuts):
    data = np.float32(offset + np.random.default_rng(0).normal(3, [1, 5], (1000, 2)))
    moments = RunningMoments((2,))
    for part in np.split(data, cuts):
        moments = update_moments(moments, part)
    exact = np.float64(data)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(moments.variance, exact.var(axis=0), rtol=1e-3)
    assert moments.count == 1000


def test_moments_of_many_steps_are_exact():
    steps = np.float32(np.random.default_rng(0).normal(5, 0.5, (4096, 64)))

    @jax.jit
    def run(steps):
        return jax.lax.scan(lambda m, x: (m.update(x), None), RunningMoments(()), steps)[0]

    moments, exact = run(steps), np.float64(steps)
    np.testing.assert_allclose(moments.mean, exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, exact.var(), rtol=1e-4)


def test_moments_of_a_constant_have_no_variance_and_a_count_at_its_end_does_no_harm():
    moments = RunningMoments(())
    for count in (1000, 77):
        moments = update_moments(moments, np.full(count, 0.1, np.float32))
    np.testing.assert_allclose(moments.mean, 0.1, rtol=1e-6)
    assert 0 <= moments.variance < 1e-12
    # float32 cannot raise it.
    moments = eqx.tree_at(lambda m: m.count, RunningMoments(()), jnp.float32(2**40))
    moments = update_moments(moments, np.full(77, 3, np.float32))
    assert moments.count == float(2**40)
    assert 0 < moments.mean < 1e-8
    np.testing.assert_allclose(moments.variance, 1, rtol=1e-6)


class _Shows(AbstractActorCritic):
    """The value is the sum of what it sees of ``x``, and it tells the types of all it sees."""

    weight: jax.Array

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        assert observation["n"].dtype == jnp.int32
        assert observation["half"].dtype == jnp.float16
        seen = observation["x"].sum() + 100 * observation["n"] + 1000 * observation["half"]
        return MaskedCategorical(jnp.zeros(2), action_mask), seen * self.weight


def test_only_floats_of_a_tree_are_normalized_and_clipped():
    def observation(x, n, half):
        return {"half": jnp.float16(half), "n": jnp.int32(n), "x": jnp.float32(x)}

    seen = observation([[[1, -2], [3, 2]]], [[7, 9]], [[0, 2]])
    model = add_normalization(as_model(_Shows(jnp.ones(()))), jax.tree.map(lambda x: x[0], seen))
    assert [m.mean.shape for m in model.moments] == [(), (2,)]

    @jax.jit
    def value(model, *numbers):
        return model(observation(*numbers), jnp.ones(2, bool))[1]

    # Nothing seen yet: mean 0, variance 1.
    assert value(model, jnp.array([1, 2]), 1, 0) == pytest.approx(103)
    model = eqx.filter_jit(update_statistics)(model, seen)
    # Means 2 and 0 with deviations 1 and 2; mean 1 with deviation 1 for the half.
    assert value(model, jnp.array([4, 6]), 1, 2) == pytest.approx(2 + 3 + 100 + 1000)
    assert value(model, jnp.array([99, 6]), 0, 1) == pytest.approx(10 + 3)
    assert value(model, jnp.array([-99, 6]), 0, 1) == pytest.approx(-10 + 3)


def test_whole_numbers_in_place_of_floats_are_refused():
    model = add_normalization(
        as_model(MLPActorCritic(4, 2, 8, 1, key=jax.random.key(0))), jnp.zeros((1, 4))
    )
    with pytest.raises(
        ValueError, match="normalizes 1 arrays of floats, but the observation has 0"
    ):
        model(jnp.arange(4), jnp.ones(2, bool))


def test_what_is_not_normalized_is_named(capsys):
    network = as_model(_Shows(jnp.ones(())))
    add_normalization(network, {"b": jnp.ones((3, 2), bool), "x": jnp.ones((3, 1))})
    assert capsys.readouterr().err == ""
    add_normalization(network, {"n": jnp.ones((3, 2), jnp.int32), "x": jnp.ones((3, 1))})
    line = "normalize_observations leaves integers as they are: n (int32)"
    assert capsys.readouterr().err == f"warning: {line}\n"
    add_normalization(network, {"n": jnp.ones((3, 2), jnp.int32), "b": jnp.ones((3, 1), bool)})
    line = "normalize_observations does nothing: it is for floats, and there is only bool, int32"
    assert capsys.readouterr().err == f"warning: {line}\n"


def test_statistics_are_not_trained():
    model = add_normalization(as_model(_Shows(jnp.ones(()))), {"x": jnp.zeros((1, 2))})
    params, rest = trainable(model)
    assert len(jax.tree.leaves(params)) == 1
    assert len(jax.tree.leaves(rest)) == 3
    assert jax.tree.structure(eqx.combine(params, rest)) == jax.tree.structure(model)
    assert add_normalization(model, {"x": jnp.zeros((1, 2))}) is model
    plain = as_model(MLPActorCritic(2, 2, 4, 1, key=jax.random.key(0)))
    assert update_statistics(plain, jnp.zeros((1, 1, 2))) is plain


class _Doubles(AbstractReader):
    """The network sees the observation and twice of it."""

    @property
    def hyperparameters(self):
        return {}

    def unpack(self, features):
        return jnp.concatenate([features, 2 * features])


def test_what_a_reader_unpacks_is_normalized():
    network = MLPActorCritic(2, 2, 4, 1, key=jax.random.key(0))
    model = add_normalization(Model(_Doubles(), network), jnp.zeros((3, 1)))
    model = eqx.filter_jit(update_statistics)(model, jnp.array([[[1.0], [3.0]]]))
    np.testing.assert_allclose(model.moments[0].mean, [2, 4])
    np.testing.assert_allclose(model.moments[0].variance, [1, 4])
    value = eqx.filter_jit(lambda model, seen: model(seen, jnp.ones(2, bool))[1])
    np.testing.assert_allclose(
        value(model, jnp.array([5.0])), value(network, jnp.array([3.0, 3.0])), rtol=1e-6
    )


@pytest.mark.parametrize("on", [True, False])
def test_the_settings_say_whether_statistics_are_updated(on, monkeypatch):
    updated = []
    monkeypatch.setattr(
        "ppo_mask.ppo._ppo.update_statistics", lambda model, _: updated.append(1) or model
    )
    trainer = Trainer(CartPole(), PPO(num_envs=4, num_steps=8, normalize_observations=on))

    def one_update(key):
        model = as_model(MLPActorCritic(4, 2, 8, 1, key=key))
        model = add_normalization(model, jnp.zeros((1, 4)))
        state = trainer.with_values().first_state(model, key)
        return trainer.with_values().update(state, jnp.int32(9))[2]

    jax.eval_shape(one_update, jax.random.key(0))
    assert bool(updated) == on


def _by_hand(reward, ended, gamma):
    returns, running = [], np.zeros(reward.shape[1])
    for r, over in zip(np.float64(reward), ended, strict=True):
        running = gamma * running + r
        returns.append(running.copy())
        running[over] = 0
    return np.array(returns), running


scale = jax.jit(RewardScaler.scale)


def test_rewards_are_divided_by_the_returns_deviation():
    rng = np.random.default_rng(0)
    reward = np.float32(rng.normal(0.3, 2, (24, 5)))
    ended = rng.random((24, 5)) < 0.2
    scaler = RewardScaler(5)
    for n in (8, 16, 24):
        scaler, scaled = scale(scaler, reward[n - 8 : n], ended[n - 8 : n], 0.9)
        returns, running = _by_hand(reward[:n], ended[:n], 0.9)
        np.testing.assert_allclose(scaled, reward[n - 8 : n] / returns.std(), rtol=1e-4)
    np.testing.assert_allclose(scaler.discounted_return, running, rtol=1e-4, atol=1e-4)
    assert scaler.moments.count == 24 * 5


def test_a_reward_that_stands_out_is_cut_off_at_10():
    reward = np.zeros((1000, 1), np.float32)
    reward[500] = -7
    _, scaled = scale(RewardScaler(1), reward, np.zeros((1000, 1), bool), 0.5)
    np.testing.assert_array_equal(scaled[500], -10)
    assert np.count_nonzero(scaled) == 1


def test_rewards_that_are_all_0_stay_0():
    _, scaled = scale(RewardScaler(2), np.zeros((3, 2), np.float32), np.zeros((3, 2), bool), 0.9)
    np.testing.assert_array_equal(scaled, 0)
