"""One update: the loss, the gradient steps, and what a config may be."""

import dataclasses
import functools
from types import SimpleNamespace
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import ppo_mask as pm
import programs
from ppo_mask import acting, ppo
from ppo_mask.errors import RunError
from ppo_mask.networks import as_model
from ppo_mask.ppo import _ppo
from ppo_mask.training import At, Batch, _minibatches as minibatches


@eqx.filter_jit
def _update(trainer, state, total):
    """What a trainer does in an update, but with a number for each gradient step."""
    algorithm = trainer.algorithm
    key, rollout_key, learn_key, _ = jax.random.split(state.key, 4)
    env = pm.VectorEnv(trainer.env, algorithm.num_envs)
    rollout, transitions = acting.collect(
        env, state.model, state.rollout, rollout_key, algorithm.num_steps
    )
    last_value = acting.bootstrap_values(state.model, rollout)
    at = At(learn_key, state.update, total, None)
    with mock.patch.object(_ppo, "mean_over_steps", lambda metrics: metrics):
        model, own, metrics = algorithm.learn(
            state.model, state.own, state.rollout, transitions, last_value, at
        )
    changed = {"model": model, "own": own, "rollout": rollout, "key": key}
    state = dataclasses.replace(state, **changed, update=state.update + 1)
    return state, transitions, metrics


class _FarAway(pm.AbstractReader):
    """A rollout keeps the observation and one that is far from 0; the network sees that one."""

    @property
    def hyperparameters(self):
        return {}

    def features(self, observation):
        return observation, 30 * observation + 50

    def unpack(self, features):
        return features[1]


@functools.cache
def _doors():
    """A memory, features that are kept in the rollout, and all that can be switched on."""
    env = programs.doors().env

    def make_model(key):
        return pm.Model(_FarAway(), pm.network_for(env, "gru", hidden_dim=8, key=key).network)

    return programs.program(env, make_model, precision="bfloat16", **programs.EVERYTHING)


def _updates(n, total=10, **numbers):
    """States, rollouts and metrics; hyperparameters that are numbers compile nothing."""
    trainer = _doors().with_config(**numbers).with_values()
    state, out = _doors().start, []
    for _ in range(n):
        state, rollout, metrics = _update(trainer, state, jnp.int32(total))
        out.append((state, rollout, SimpleNamespace(**metrics)))
    return out


def _diagnostics(**numbers):
    return _updates(1, **numbers)[0][2]


def test_first_minibatch_has_the_policy_that_acted():
    """With the statistics of after the rollout, or in other precision, the ratio would not be 1."""
    seen = []
    for state, rollout, diagnostics in _updates(4, learning_rate=1e-2):
        assert abs(diagnostics.approx_kl[0]) < 1e-8
        assert diagnostics.clip_frac[0] == 0
        np.testing.assert_allclose(diagnostics.pg_loss[0], 0, atol=1e-5)  # mean of advantages
        assert (diagnostics.approx_kl[1:] > 0).all()
        # The statistics are those of all that was acted on.
        observation, far = rollout.decision.observation
        np.testing.assert_array_equal(far, 30 * observation + 50)
        seen.append(np.float64(far).reshape(-1, 3))
        [moments] = state.model.moments
        assert moments.count == sum(map(len, seen))
        np.testing.assert_allclose(moments.mean, np.concatenate(seen).mean(axis=0), rtol=1e-5)
        np.testing.assert_allclose(moments.variance, np.concatenate(seen).var(axis=0), rtol=1e-2)
    assert state.model.precision == "bfloat16"
    floats = filter(eqx.is_inexact_array, jax.tree.leaves((state.model, state.own.opt_state)))
    assert {x.dtype for x in floats} == {np.dtype("float32")}


def test_each_epoch_uses_every_sample_once():
    diagnostics = _diagnostics(learning_rate=0.0)
    epochs = diagnostics.vf_loss.reshape(2, 2)
    # With a learning rate of 0 the value loss of an epoch's minibatches averages to the batch's.
    np.testing.assert_allclose(epochs.mean(axis=1), epochs.mean(), rtol=1e-5)
    assert epochs.std(axis=0).max() > 0  # Another permutation in each epoch.


def test_the_value_learns_scaled_rewards_and_a_rollout_keeps_them_as_they_are():
    [(_, rollout, diagnostics)] = _updates(1, learning_rate=0.0, gamma=0.0)
    assert set(np.unique(rollout.reward)) == {0, 1}
    scale = jax.jit(acting.RewardScaler.scale)
    _, scaled = scale(acting.RewardScaler(8), rollout.reward, rollout.ended, 0.0)
    assert scaled.max() > 1.5
    expected = np.square(scaled - rollout.decision.value).mean() / 2
    np.testing.assert_allclose(diagnostics.vf_loss[:2].mean(), expected, rtol=1e-3)


def test_a_truncated_step_is_bootstrapped_with_its_final_value():
    rows, no = jnp.zeros((3, 1)), jnp.zeros((3, 1), bool)
    value, final = jnp.array([[1.0], [2.0], [4.0]]), jnp.array([[0.0], [10.0], [0.0]])
    decision = acting.Decision(rows, no[..., None], rows.astype(jnp.int32), rows, value)
    lengths = rows.astype(jnp.int32)
    rollout = acting.Transition(decision, rows, no, final > 0, final, {}, rows, lengths)
    algorithm = pm.PPO(gamma=0.5, gae_lambda=0.0)
    _, advantage = algorithm.estimate(None, rollout, jnp.ones(1))
    np.testing.assert_array_equal((advantage + value)[:, 0], [1, 5, 0.5])


def test_gradient_steps_end_before_target_kl_is_passed():
    numbers = {"learning_rate": 1e-2, "ent_coef": 0.15}
    free = _diagnostics(target_kl=1e9, **numbers)
    kl = np.array(free.approx_kl)
    target = float(np.sort(kl)[2:].mean())
    first = int(np.argmax(kl > target))
    assert 0 < first < 4
    stopped = _diagnostics(target_kl=target, **numbers)
    assert (free.gradient_steps.sum(), stopped.gradient_steps.sum()) == (4, first)
    for name in ("total_loss", "approx_kl", "grad_norm", "entropy"):
        ours, theirs = getattr(stopped, name), getattr(free, name)
        np.testing.assert_array_equal(ours[:first], theirs[:first])
        np.testing.assert_array_equal(ours[first:], 0)
    assert stopped.lr == free.lr


def test_the_norm_is_from_before_clipping():
    free, clipped = (_diagnostics(max_grad_norm=norm) for norm in (1e9, 1e-3))
    assert free.grad_norm[0] == clipped.grad_norm[0] > 1e-2


def test_advantages_are_standardized_and_variance_is_explained():
    advantage = np.array([1.0, 2.0, 6.0], np.float32)
    expected = (advantage - 3) / np.std(advantage)
    standardized = _ppo._standardized(jnp.asarray(advantage))
    np.testing.assert_allclose(standardized, expected, rtol=1e-6)
    explained = _ppo._explained_variance
    value, return_ = jnp.array([0.0, 1.0, 3.0]), jnp.array([1.0, 2.0, 6.0])
    share = 1 - np.var([1, 1, 3]) / np.var([1, 2, 6])
    np.testing.assert_allclose(explained(value, return_), share, rtol=1e-6)
    assert explained(value, jnp.ones(3)) == 0


def _rates(updates_done, total=3, **changes):
    algorithm = pm.PPO(8, 8, num_minibatches=2, update_epochs=2, **changes)
    at = At(jax.random.key(0), jnp.int32(updates_done), jnp.int32(total), None)
    return algorithm._learning_rates(at)


def test_learning_rate_falls_by_gradient_step_to_zero_or_stays():
    rates = [_rates(n, learning_rate=1.0, anneal_lr=True) for n in range(4)]
    expected = np.maximum(1 - np.arange(16) / 12, 0)
    np.testing.assert_allclose(np.concatenate(rates), expected, atol=1e-6)
    np.testing.assert_allclose(_rates(2, learning_rate=2.5e-4), np.full(4, 2.5e-4))


def test_a_schedule_is_given_the_number_of_the_gradient_step():
    rates = _rates(2, learning_rate=lambda step: step / 10)
    np.testing.assert_allclose(rates, np.arange(8, 12) / 10)
    # Numbers that it is made of may be traced.
    made = jax.vmap(lambda peak: _rates(1, learning_rate=optax.linear_schedule(peak, 0.0, 10)))
    expected = np.array([0.6, 0.5, 0.4, 0.3])
    np.testing.assert_allclose(made(jnp.array([1.0, 10.0])), [expected, 10 * expected], rtol=1e-5)
    # The count ends where that of optax ends.
    np.testing.assert_allclose(_rates(2**31 - 1, learning_rate=lambda step: step / 2.0**31), 1.0)
    with pytest.raises(RunError, match="must give one number for each gradient step"):
        _rates(2, learning_rate=lambda step: jnp.ones(3))
    with pytest.raises(RunError, match=r"learning rate's schedule fails: .*\(test_update.py, line"):
        _rates(2, learning_rate=lambda step: 1 if step else 0)


def test_clipping_is_by_global_norm_and_adams_eps_is_1e5():
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    tx = pm.PPO(max_grad_norm=1e-5)._optimizer(gradient)
    update, _ = tx.update(gradient, tx.init(gradient))
    clipped = {"a": np.array([6e-6, 0.0]), "b": np.array([[8e-6]])}  # Shortened, not bent.
    for name, g in clipped.items():
        np.testing.assert_allclose(update[name], g / (np.abs(g) + 1e-5), rtol=1e-4)
    short = {"a": jnp.array([1e-5, 0.0]), "b": jnp.array([[0.0]])}
    update, _ = tx.update(short, tx.init(short))
    np.testing.assert_allclose(update["a"][0], 0.5, rtol=1e-4)


def test_the_advantage_of_a_single_row_stays_as_it_is():
    standardized = _ppo._standardized
    assert standardized(jnp.array([[3.0]])).tolist() == [[3.0]]


def _batch(key, n=64):
    keys = jax.random.split(key, 6)
    decision = acting.Decision(
        observation=jax.random.normal(keys[0], (n, 4)),
        action_mask=jax.random.bernoulli(keys[1], 0.5, (n, 6)).at[:, 2].set(True),
        action=jnp.full(n, 2),
        log_prob=-jax.random.uniform(keys[2], (n,), minval=0.5, maxval=3.0),
        value=jax.random.normal(keys[3], (n,)),
    )
    return Batch(
        decision,
        advantage=jax.random.normal(keys[4], (n,)),
        return_=jax.random.normal(keys[5], (n,)),
    )


@pytest.mark.parametrize("clip_value", [False, True])
def test_loss_equals_the_formulas_in_float64(clip_value):
    model = as_model(pm.MLPActorCritic(4, 6, 8, 1, key=jax.random.key(0)))
    batch = jax.jit(_batch)(jax.random.key(1))
    config = pm.PPO(clip_value=clip_value, ent_coef=0.15)

    @eqx.filter_jit
    def run(model, batch):
        old = batch.decision
        distribution, value = jax.vmap(model)(old.observation, old.action_mask)
        return jax.vmap(lambda d: d.probs)(distribution), value, *ppo.ppo_loss(model, batch, config)

    probs, value, total, metrics = run(model, batch)
    probs, value = np.float64(probs), np.float64(value)
    old_log_prob, old_value, advantage, return_ = (
        np.float64(x)
        for x in (batch.decision.log_prob, batch.decision.value, batch.advantage, batch.return_)
    )
    ratio = probs[:, 2] / np.exp(old_log_prob)
    pg = -np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage).mean()
    error = (value - return_) ** 2
    if clip_value:
        clipped = old_value + np.clip(value - old_value, -0.2, 0.2)
        error = np.maximum(error, (clipped - return_) ** 2)
    log_probs = np.log(np.where(probs > 0, probs, 1))
    entropy = -(probs * log_probs).sum(axis=1).mean()
    want = {
        "pg_loss": pg,
        "vf_loss": error.mean() / 2,
        "entropy": entropy,
        "approx_kl": (ratio - 1 - np.log(ratio)).mean(),
        "clip_frac": (np.abs(ratio - 1) > 0.2).mean(),
        "total_loss": pg + 0.5 * error.mean() / 2 - 0.15 * entropy,
    }
    assert want.keys() == metrics.keys()
    for name, x in want.items():
        np.testing.assert_allclose(metrics[name], x, rtol=1e-4, err_msg=name)
    assert total == metrics["total_loss"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "parts", "rows_in_cache"),
    [(programs.locks, 4, 1024), (programs.locks, 2, 8), (programs.gru, 4, 1024)],
)
def test_a_minibatch_in_parts_changes_no_result(make, parts, rows_in_cache, monkeypatch):
    def learn(parts):
        trainer, state = make().with_config(gradient_accumulation=parts), make().start
        # Compiled again: another program may be cut into parts of another size.
        update = eqx.filter_jit(lambda *args: trainer.update(*args))
        for _ in range(3):
            state, _, metrics = update(state, jnp.int32(3))
        return state.model, metrics

    whole = learn(1)
    monkeypatch.setattr(minibatches, "_FLOATS_IN_CACHE", 0)
    monkeypatch.setattr(minibatches, "_FEWEST_ROWS", rows_in_cache)
    in_parts = learn(parts)
    for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(in_parts), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
        ({"optimizer": optax.adam}, r"optimizer must be made first, such as optax.adam\(1e-3\)"),
        ({"anneal_lr": "no"}, "anneal_lr must be True or False, got 'no'"),
        ({"normalize_rewards": 0.5}, "normalize_rewards must be True or False, got 0.5"),
        ({"num_envs": 3, "num_steps": 5}, "num_minibatches = 4 does not divide the batch"),
        ({"gradient_accumulation": 0}, "gradient_accumulation must be at least 1, got 0"),
        (
            {"num_envs": 6, "num_steps": 2, "gradient_accumulation": 2},
            "gradient_accumulation = 2 does not divide the minibatch of 12 / 4 = 3",
        ),
        ({"target_kl": 0}, "target_kl must be more than 0, got 0"),
        ({"target_kl": "off"}, "target_kl must be a number or a scalar array, got 'off'"),
        ({"precision": "half"}, "precision must be float32 or bfloat16, got 'half'"),
        ({"gamma": 1.5}, "gamma must be at most 1, got 1.5"),
        ({"learning_rate": float("nan")}, "learning_rate must be a finite number"),
        ({"learning_rate": optax.adam(1e-3)}, "learning_rate must be a number"),
        (
            {"learning_rate": optax.constant_schedule(1.0), "anneal_lr": True},
            "anneal_lr needs a number as learning rate: a schedule anneals by itself",
        ),
        ({"gamma": optax.constant_schedule(1.0)}, "gamma must be a number or a scalar array"),
        ({"clip_eps": 0}, "clip_eps must be more than 0"),
        ({"ent_coef": "0.1"}, "ent_coef must be a number or a scalar array, got '0.1'"),
    ],
)
def test_config_refuses_what_cannot_work_in_one_line(bad, message):
    with pytest.raises(ValueError, match=message) as error:
        pm.PPO(**bad)
    assert "\n" not in str(error.value)
