"""Running statistics, and what the learner does with them."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import CartPole, Scripted
from ppo_mask import ppo
from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import MatchObservation
from ppo_mask.networks import (
    AbstractActorCritic,
    AbstractFeatureActorCritic,
    MaskedCategorical,
    MLPActorCritic,
    NormalizedActorCritic,
    RunningMoments,
    add_normalization,
    trainable,
    update_statistics,
)
from ppo_mask.ppo import PPOConfig, RewardScaler, start_rollout
from ppo_mask.training import Callback, Trainer


@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("cuts", [[], [1], [1, 2, 700], list(range(100, 1000, 100))])
def test_moments_do_not_depend_on_how_arrays_are_batched(offset, cuts):
    data = np.float32(offset + np.random.default_rng(0).normal(3, [1, 5], (1000, 2)))
    moments = RunningMoments((2,))
    for part in np.split(data, cuts):
        moments = moments.update(jnp.asarray(part))
    exact = np.float64(data)
    np.testing.assert_allclose(moments.mean, exact.mean(axis=0), rtol=1e-6, atol=1e-5)
    np.testing.assert_allclose(moments.variance, exact.var(axis=0), rtol=1e-3)
    assert moments.count == 1000


def test_moments_of_many_steps_are_exact():
    steps = 5 + 0.5 * jax.random.normal(jax.random.key(0), (4096, 64))

    @jax.jit
    def run(steps):
        return jax.lax.scan(lambda m, x: (m.update(x), None), RunningMoments(()), steps)[0]

    moments, exact = run(steps), np.float64(steps)
    np.testing.assert_allclose(moments.mean, exact.mean(), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, exact.var(), rtol=1e-4)


def test_moments_of_a_constant_have_no_variance():
    moments = RunningMoments(()).update(jnp.full(1000, 0.1)).update(jnp.full(77, 0.1))
    np.testing.assert_allclose(moments.mean, 0.1, rtol=1e-6)
    assert 0 <= moments.variance < 1e-12


def test_a_count_that_float32_cannot_raise_does_no_harm():
    moments = eqx.tree_at(lambda m: m.count, RunningMoments(()), jnp.float32(2**40))
    moments = jax.jit(lambda m: m.update(jnp.full(8, 3.0)))(moments)
    assert moments.count == float(2**40)
    assert 0 < moments.mean < 1e-9
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
    model = add_normalization(_Shows(jnp.ones(())), jax.tree.map(lambda x: x[0], seen))
    assert [m.mean.shape for m in model.moments] == [(), (2,)]
    mask = jnp.ones(2, bool)
    # Nothing seen yet: mean 0, variance 1.
    assert model(observation([1, 2], 1, 0), mask)[1] == pytest.approx(103)
    model = update_statistics(model, seen)
    # Means 2 and 0 with deviations 1 and 2; mean 1 with deviation 1 for the half.
    assert model(observation([4, 6], 1, 2), mask)[1] == pytest.approx(2 + 3 + 100 + 1000)
    assert model(observation([99, 6], 0, 1), mask)[1] == pytest.approx(10 + 3)
    assert model(observation([-99, 6], 0, 1), mask)[1] == pytest.approx(-10 + 3)


def test_that_there_is_nothing_to_normalize_is_told(capsys):
    network = _Shows(jnp.ones(()))
    add_normalization(network, {"n": jnp.ones((3, 2), jnp.int32), "x": jnp.ones((3, 1))})
    assert capsys.readouterr().err == ""
    add_normalization(network, {"n": jnp.ones((3, 2), jnp.int32), "b": jnp.ones((3, 1), bool)})
    line = "normalize_observations does nothing: it is for floats, and all is bool, int32 here"
    assert capsys.readouterr().err == f"warning: {line}\n"


def test_statistics_are_not_trained():
    model = add_normalization(_Shows(jnp.ones(())), {"x": jnp.zeros((1, 2))})
    params, rest = trainable(model)
    assert len(jax.tree.leaves(params)) == 1
    assert len(jax.tree.leaves(rest)) == 3
    assert jax.tree.structure(eqx.combine(params, rest)) == jax.tree.structure(model)
    assert add_normalization(model, {"x": jnp.zeros((1, 2))}) is model
    plain = MLPActorCritic(2, 2, 4, 1, key=jax.random.key(0))
    assert update_statistics(plain, jnp.zeros((1, 1, 2))) is plain


class _Doubles(AbstractFeatureActorCritic):
    """Its features are the observation and twice of it."""

    network: AbstractActorCritic

    def features(self, observation):
        return observation

    def unpack(self, features):
        return jnp.concatenate([features, 2 * features])


def test_features_come_of_raw_observations_and_are_normalized():
    network = MLPActorCritic(2, 2, 4, 1, key=jax.random.key(0))
    model = add_normalization(_Doubles(network), jnp.zeros((3, 1)))
    assert isinstance(model, _Doubles)
    assert isinstance(model.network, NormalizedActorCritic)
    model = update_statistics(model, jnp.array([[[1.0], [3.0]]]))
    np.testing.assert_allclose(model.network.moments[0].mean, [2, 4])
    np.testing.assert_allclose(model.network.moments[0].variance, [1, 4])
    mask = jnp.ones(2, bool)
    np.testing.assert_allclose(
        model(jnp.array([5.0]), mask)[1], network(jnp.array([3.0, 3.0]), mask)[1], rtol=1e-6
    )


class _Far(CartPole):
    """CartPole, its observation far from 0 and of an odd scale."""

    def _timestep(self, state, reward, terminated, truncated):
        timestep = super()._timestep(state, reward, terminated, truncated)
        far = timestep.observation * jnp.array([1.0, 30.0, 1.0, 0.01]) + 50
        return eqx.tree_at(lambda t: t.observation, timestep, far)


_CONFIG = PPOConfig(
    num_envs=8, num_steps=32, learning_rate=1e-3, normalize_observations=True, anneal_lr=True
)


@pytest.fixture(scope="module")
def updates():
    """Three updates: what was acted on, the diagnostics, and the model after each."""
    vector_env = VectorEnv(_Far(), _CONFIG.num_envs)
    model = MLPActorCritic(4, 2, 16, 1, key=jax.random.key(0))
    state = ppo.init_learner(
        model, start_rollout(vector_env, model, jax.random.key(1)), _CONFIG, jax.random.key(2)
    )
    update = eqx.filter_jit(ppo.update)
    out = []
    for _ in range(3):
        state, transitions, diagnostics = update(vector_env, _CONFIG, state, jnp.int32(9))
        out.append((transitions, diagnostics, state.model))
    return out


def test_gradient_steps_get_the_inputs_that_were_acted_on(updates):
    for _, diagnostics, _ in updates:
        assert abs(diagnostics.approx_kl[0]) < 1e-8
        assert diagnostics.clip_frac[0] == 0
        np.testing.assert_allclose(diagnostics.pg_loss[0], 0, atol=1e-5)
        assert (diagnostics.approx_kl[1:] > 0).all()
    # With the statistics of after the update the first ratio would have been another one.
    transitions, _, after = updates[1]
    before = updates[0][2]
    network_before = eqx.tree_at(lambda m: m.moments, before, after.moments)
    for model, same in ((before, True), (network_before, False)):
        distribution, _ = jax.vmap(jax.vmap(model))(
            transitions.observation, transitions.action_mask
        )
        log_prob = jax.vmap(jax.vmap(lambda d, a: d.log_prob(a)))(distribution, transitions.action)
        close = np.allclose(log_prob, transitions.log_prob, atol=1e-5)
        assert close == same


def test_the_statistics_are_those_of_all_that_was_acted_on(updates):
    for n in (1, 2, 3):
        seen = np.concatenate([np.float64(t.observation).reshape(-1, 4) for t, _, _ in updates[:n]])
        [moments] = updates[n - 1][2].moments
        assert moments.count == len(seen)
        np.testing.assert_allclose(moments.mean, seen.mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(moments.variance, seen.var(axis=0), rtol=1e-2)


def test_statistics_stay_without_normalize_observations():
    env = _Far()
    model = add_normalization(MLPActorCritic(4, 2, 8, 1, key=jax.random.key(0)), jnp.zeros((1, 4)))
    model = update_statistics(model, 50 + jax.random.normal(jax.random.key(1), (4, 2, 4)))
    config = PPOConfig(num_envs=4, num_steps=8)
    after = (
        Trainer(env, config)
        .train(Trainer(env, config).init(model, jax.random.key(2)), 1 * config.batch_size)
        .model
    )
    np.testing.assert_array_equal(after.moments[0].mean, model.moments[0].mean)
    assert (after.network.actor[0].weight != model.network.actor[0].weight).any()


class _FarAway(MatchObservation):  # pyright: ignore[reportGeneralTypeIssues]
    """What tells the right action is a small difference far from 0."""

    def _show(self, state, timestep):
        observation = 1000 + 0.1 * timestep.observation
        return state, eqx.tree_at(lambda t: t.observation, timestep, observation)

    def reset(self, key):
        return self._show(*super().reset(key))

    def step(self, key, state, action):
        return self._show(*super().step(key, state, action))


@pytest.mark.optimized
@pytest.mark.parametrize("on", [True, False])
def test_far_observations_are_learned_only_if_normalized(on):
    env = _FarAway()
    config = PPOConfig(
        num_envs=16, num_steps=16, learning_rate=1e-2, ent_coef=0.01, normalize_observations=on
    )
    model = MLPActorCritic(1, 2, 16, 1, key=jax.random.key(0))
    model = (
        Trainer(env, config)
        .train(Trainer(env, config).init(model, jax.random.key(1)), 40 * config.batch_size)
        .model
    )
    chances = [model(jnp.array([1000 + x]), jnp.ones(2, bool))[0].probs[1] for x in (0.1, -0.1)]
    assert (chances[0] > 0.9 and chances[1] < 0.1) == on


def _by_hand(reward, ended, gamma):
    returns, running = [], np.zeros(reward.shape[1])
    for r, over in zip(np.float64(reward), ended, strict=True):
        running = gamma * running + r
        returns.append(running.copy())
        running[over] = 0
    return np.array(returns), running


def test_rewards_are_divided_by_the_returns_deviation():
    rng = np.random.default_rng(0)
    reward = np.float32(rng.normal(0.3, 2, (24, 5)))
    ended = rng.random((24, 5)) < 0.2
    scaler, scaled = RewardScaler(5), []
    for part in (slice(0, 8), slice(8, 16), slice(16, 24)):
        scaler, s = jax.jit(RewardScaler.scale)(scaler, reward[part], ended[part], 0.9)
        scaled.append(s)
    for n, s in zip((8, 16, 24), scaled, strict=True):
        returns, running = _by_hand(reward[:n], ended[:n], 0.9)
        np.testing.assert_allclose(s, reward[n - 8 : n] / returns.std(), rtol=1e-4)
    np.testing.assert_allclose(scaler.discounted_return, running, rtol=1e-4, atol=1e-4)
    assert scaler.moments.count == 24 * 5


def test_a_reward_that_stands_out_is_cut_off_at_10():
    reward = jnp.zeros((1000, 1)).at[500].set(-7.0)
    _, scaled = RewardScaler(1).scale(reward, jnp.zeros((1000, 1), bool), 0.5)
    np.testing.assert_array_equal(scaled[500], -10)
    assert np.count_nonzero(scaled) == 1


def test_rewards_that_are_all_0_stay_0():
    _, scaled = RewardScaler(2).scale(jnp.zeros((3, 2)), jnp.zeros((3, 2), bool), 0.9)
    np.testing.assert_array_equal(scaled, 0)


class _Recorder(Callback):
    def __init__(self):
        self.records = []

    def on_log(self, run, record):
        self.records.append(record.values)


@pytest.mark.optimized
def test_logged_rewards_are_not_normalized():
    env = Scripted(length=5)
    logs = []
    for on in (False, True):
        config = PPOConfig(num_envs=4, num_steps=8, normalize_rewards=on)
        model = MLPActorCritic(1, env.num_actions, 8, 1, key=jax.random.key(0))
        recorder = _Recorder()
        state = Trainer(env, config).init(model, jax.random.key(1))
        Trainer(env, config).train(
            state, 3 * config.batch_size, callbacks=[recorder], log_interval=1
        )
        logs.append(recorder.records)
    raw, scaled = logs
    for one, other in zip(raw, scaled, strict=True):
        assert other["train/mean_episode_return"] == 15
        assert other["train/mean_reward"] == one["train/mean_reward"]
        assert other["train/vf_loss"] < 0.3 * one["train/vf_loss"]
