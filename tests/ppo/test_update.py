from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from environments import CartPole
from ppo_mask import ppo
from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import AbstractActorCritic, AbstractFeatureActorCritic, MLPActorCritic
from ppo_mask.ppo import Batch, PPOConfig, _minibatches as minibatches, start_rollout

# Hyperparameters as arrays, so that the tests share compiled programs.
_SIZES = {"num_envs": 8, "num_steps": 32, "max_grad_norm": jnp.float32(0.5)}


@eqx.filter_jit
def _update(vector_env, config, state, total):
    return ppo.update(vector_env, config, state, total)


def _diagnostics(n, env=None, total=10, observation_size=4, **config):
    env = CartPole() if env is None else env
    numbers = {"learning_rate": 1e-2, "ent_coef": 0.15} | config
    config = PPOConfig(
        **_SIZES | {k: jnp.float32(v) if type(v) is float else v for k, v in numbers.items()}
    )
    model = MLPActorCritic(observation_size, env.num_actions, 16, 1, key=jax.random.key(0))
    vector_env = VectorEnv(env, config.num_envs)
    state = ppo.init_learner(
        model, start_rollout(vector_env, model, jax.random.key(1)), config, jax.random.key(2)
    )
    out = []
    for _ in range(n):
        state, _, diagnostics = _update(vector_env, config, state, jnp.int32(total))
        out.append(diagnostics)
    return out


@pytest.mark.parametrize(("env", "size"), [(CartPole(), 4), (MaskedLocks(), 1)])
def test_first_minibatch_has_the_policy_that_acted(env, size):
    for diagnostics in _diagnostics(4, env, observation_size=size):
        assert abs(diagnostics.approx_kl[0]) < 1e-8
        assert diagnostics.clip_frac[0] == 0
        np.testing.assert_allclose(diagnostics.pg_loss[0], 0, atol=1e-5)  # mean of advantages
        assert (diagnostics.approx_kl[1:] > 0).all()


def test_learning_rate_falls_by_gradient_step_to_zero():
    updates = _diagnostics(3, total=3, learning_rate=1.0, anneal_lr=True)
    lr = np.concatenate([diagnostics.lr for diagnostics in updates])
    np.testing.assert_allclose(lr, 1 - np.arange(48) / 48, atol=1e-6)


def test_learning_rate_stays_unless_annealed():
    for diagnostics in _diagnostics(2, total=2, learning_rate=2.5e-4):
        np.testing.assert_allclose(diagnostics.lr, 2.5e-4)


def test_each_epoch_uses_every_sample_once():
    [diagnostics] = _diagnostics(1, learning_rate=0.0)
    epochs = diagnostics.vf_loss.reshape(4, 4)
    # With a learning rate of 0 the value loss of an epoch's minibatches averages to the batch's.
    np.testing.assert_allclose(epochs.mean(axis=1), epochs.mean(), rtol=1e-5)
    assert epochs.std(axis=0).max() > 0  # Another permutation in each epoch.


def test_clipping_is_by_global_norm_and_adams_eps_is_1e5():
    gradient = {"a": jnp.array([3.0, 0.0]), "b": jnp.array([[4.0]])}
    tx = ppo.Algorithm().make_optimizer(PPOConfig(max_grad_norm=0.5))
    update, _ = tx.update(gradient, tx.init(gradient))
    clipped = {"a": np.array([0.3, 0.0]), "b": np.array([[0.4]])}  # Shortened, not bent.
    for name, g in clipped.items():
        np.testing.assert_allclose(update[name], g / (np.abs(g) + 1e-5), rtol=1e-4)
    short = {"a": jnp.array([1e-5, 0.0]), "b": jnp.array([[0.0]])}
    update, _ = tx.update(short, tx.init(short))
    np.testing.assert_allclose(update["a"][0], 0.5, rtol=1e-4)


class _Pays(CartPole):
    """Pays for moving to the right."""

    pay: Any = 1.0

    def step(self, key, state, action):
        state, timestep = super().step(key, state, action)
        return state, eqx.tree_at(lambda t: t.reward, timestep, self.pay * action)


def _batch(key, n=64):
    keys = jax.random.split(key, 6)
    return Batch(
        observation=jax.random.normal(keys[0], (n, 4)),
        action_mask=jax.random.bernoulli(keys[1], 0.5, (n, 6)).at[:, 2].set(True),
        action=jnp.full(n, 2),
        log_prob=-jax.random.uniform(keys[2], (n,), minval=0.5, maxval=3.0),
        value=jax.random.normal(keys[3], (n,)),
        advantage=jax.random.normal(keys[4], (n,)),
        return_=jax.random.normal(keys[5], (n,)),
    )


@pytest.mark.parametrize("clip_value", [False, True])
def test_loss_equals_the_formulas_in_float64(clip_value):
    model = MLPActorCritic(4, 6, 8, 1, key=jax.random.key(0))
    batch = jax.jit(_batch)(jax.random.key(1))
    config = PPOConfig(clip_value=clip_value, ent_coef=0.15)

    @eqx.filter_jit
    def run(model, batch):
        distribution, value = jax.vmap(model)(batch.observation, batch.action_mask)
        return jax.vmap(lambda d: d.probs)(distribution), value, *ppo.ppo_loss(model, batch, config)

    probs, value, total, metrics = run(model, batch)
    probs, value = np.float64(probs), np.float64(value)
    old_log_prob, old_value, advantage, return_ = (
        np.float64(x) for x in (batch.log_prob, batch.value, batch.advantage, batch.return_)
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


def test_advantages_are_standardized_over_the_minibatch():
    # Beside rewards of this size the values are near 0, so that advantages grow as rewards do.
    config = {"vf_coef": 0.0, "ent_coef": 0.0, "gamma": 0.0}
    small, large = (_diagnostics(1, _Pays(pay=jnp.float32(x)), **config)[0] for x in (1e3, 1e6))
    np.testing.assert_allclose(small.grad_norm[:4], large.grad_norm[:4], rtol=1e-2)
    assert large.vf_loss[0] > 1e5 * small.vf_loss[0]


@pytest.mark.slow
@pytest.mark.parametrize(("parts", "rows_in_cache"), [(2, 1024), (4, 1024), (1, 16), (2, 16)])
def test_a_minibatch_in_parts_changes_no_result(parts, rows_in_cache, monkeypatch):
    def learn(parts):
        config = PPOConfig(num_envs=8, num_steps=32, gradient_accumulation=parts)
        vector_env = VectorEnv(MaskedLocks(), config.num_envs)
        model = MLPActorCritic(1, 32, 16, 1, key=jax.random.key(0))
        state = ppo.init_learner(
            model, start_rollout(vector_env, model, jax.random.key(1)), config, jax.random.key(2)
        )
        # Compiled again: another program may be cut into parts of another size.
        update = eqx.filter_jit(lambda *args: ppo.update(*args))
        for _ in range(3):
            state, _, diagnostics = update(vector_env, config, state, jnp.int32(3))
        return state.model, diagnostics

    whole = learn(1)
    monkeypatch.setattr(minibatches, "_ROWS_IN_CACHE", rows_in_cache)
    in_parts = learn(parts)
    for x, y in zip(jax.tree.leaves(whole), jax.tree.leaves(in_parts), strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


def test_gradient_steps_end_before_target_kl_is_passed():
    free = _diagnostics(1)[0]
    kl = np.array(free.approx_kl)
    # Between two of them: the program that stops rounds in another way.
    target = float(np.sort(kl)[8:10].mean())
    first = int(np.argmax(kl > target))
    assert 0 < first < 15
    [stopped] = _diagnostics(1, target_kl=target)
    assert (free.gradient_steps, stopped.gradient_steps) == (16, first)
    for name in ("total_loss", "approx_kl", "grad_norm", "entropy"):
        ours, theirs = getattr(stopped, name), getattr(free, name)
        np.testing.assert_allclose(ours[:first], theirs[:first], rtol=1e-3, atol=1e-6)
        np.testing.assert_array_equal(ours[first:], 0)
    np.testing.assert_array_equal(stopped.lr, free.lr)


def test_explained_variance_and_norm_before_clipping():
    [diagnostics] = _diagnostics(1, max_grad_norm=1e-3)
    assert diagnostics.explained_variance < 1
    assert (diagnostics.grad_norm > 1e-2).all()


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ({"num_envs": 0}, "num_envs must be at least 1, got 0"),
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
        ({"learning_rate": lambda step: jnp.ones(3)}, "learning_rate must be a schedule that JAX"),
        ({"learning_rate": lambda step: 1 if step else 0}, "must be a schedule that JAX can trace"),
        (
            {"learning_rate": optax.constant_schedule(1.0), "anneal_lr": True},
            "anneal_lr needs a number as learning_rate: a schedule falls by itself",
        ),
        ({"gamma": optax.constant_schedule(1.0)}, "gamma must be a number or a scalar array"),
        ({"clip_eps": 0}, "clip_eps must be more than 0"),
        ({"ent_coef": "0.1"}, "ent_coef must be a number or a scalar array, got '0.1'"),
    ],
)
def test_config_refuses_what_cannot_work_in_one_line(bad, message):
    with pytest.raises(ValueError, match=message) as error:
        PPOConfig(**bad)
    assert "\n" not in str(error.value)


def _pairs(observation):
    return jnp.concatenate([observation, observation[:2] * observation[2:]])


class _WithFeatures(AbstractFeatureActorCritic):
    network: AbstractActorCritic

    def features(self, observation):
        return _pairs(observation), observation

    def unpack(self, features):
        return features[0]


class _AllInOne(AbstractActorCritic):
    network: AbstractActorCritic
    hyperparameters = None  # pyright: ignore[reportAssignmentType]

    def __call__(self, observation, action_mask):
        return self.network(_pairs(observation), action_mask)


@pytest.mark.slow
def test_features_kept_in_the_rollout_change_no_result():
    config = PPOConfig(num_envs=8, num_steps=32)
    env = VectorEnv(CartPole(), config.num_envs)
    network = MLPActorCritic(6, 2, 16, 1, key=jax.random.key(0))
    states, rollouts = [], []
    for model in (_WithFeatures(network), _AllInOne(network)):
        state = ppo.init_learner(
            model, start_rollout(env, model, jax.random.key(1)), config, jax.random.key(2)
        )
        for _ in range(2):
            state, transitions, _ = _update(env, config, state, jnp.int32(10))
        states.append(state)
        rollouts.append(transitions.observation)
    seen, observed = rollouts
    np.testing.assert_array_equal(seen[0], jax.vmap(jax.vmap(_pairs))(observed))
    for one, other in zip(*(jax.tree.leaves(s.model.network) for s in states), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
