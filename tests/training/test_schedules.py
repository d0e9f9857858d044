"""A learning rate that is a schedule of optax: the optimizer that it makes, logs and resuming."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig, update
from ppo_mask.training import History, Trainer, init_seeds, select_seed, train_seeds

ENV = MaskedLocks()
UPDATES = 5
CONFIG = PPOConfig(num_envs=8, num_steps=8, num_minibatches=2, update_epochs=2)
STEPS = UPDATES * CONFIG.gradient_steps
# It rises, and then falls; so a step too early or too late would show.
SCHEDULE = optax.warmup_cosine_decay_schedule(1e-4, 1e-2, 6, STEPS, 1e-3)
SCHEDULED = dataclasses.replace(CONFIG, learning_rate=SCHEDULE)


def make_model(key):
    return MLPActorCritic.for_env(ENV, key=key, hidden_dim=8, num_layers=1)


def begin(trainer):
    return trainer.init(make_model(jax.random.key(0)), jax.random.key(1))


def weights(state):
    return jax.tree.leaves(eqx.filter(state.model, eqx.is_array))


@pytest.fixture(scope="module")
def trained():
    history, trainer = History(), Trainer(ENV, SCHEDULED)
    state = trainer.train(
        begin(trainer), UPDATES * CONFIG.batch_size, callbacks=[history], log_interval=1
    )
    return state, history


def test_it_is_the_optimizer_made_by_hand(trained):
    by_hand = optax.chain(
        optax.clip_by_global_norm(CONFIG.max_grad_norm), optax.adam(SCHEDULE, eps=1e-5)
    )
    trainer = Trainer(ENV, CONFIG, optimizer=by_hand)
    state = trainer.train(begin(trainer), UPDATES * CONFIG.batch_size)
    for one, other in zip(weights(trained[0]), weights(state), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def last_rates(updates):
    """The rate of the last gradient step of each update."""
    return [SCHEDULE((n + 1) * CONFIG.gradient_steps - 1) for n in range(updates)]


def test_the_log_has_it(trained):
    np.testing.assert_allclose(trained[1]["train/lr"], last_rates(UPDATES), rtol=1e-5)


@pytest.mark.slow
def test_a_stop_changes_nothing(trained):
    trainer = Trainer(ENV, SCHEDULED)
    state = trainer.train(begin(trainer), 2 * CONFIG.batch_size)
    state = trainer.train(state, UPDATES * CONFIG.batch_size)
    for one, other in zip(weights(trained[0]), weights(state), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.slow
def test_seeds_have_it_too():
    trainer = Trainer(ENV, SCHEDULED)
    keys = jnp.stack([jax.random.key(seed) for seed in range(2)])
    states, histories = train_seeds(
        trainer, init_seeds(trainer, make_model, keys), 2 * CONFIG.batch_size
    )
    for history in histories:
        np.testing.assert_allclose(history["train/lr"], last_rates(2)[1:], rtol=1e-5)
    assert select_seed(states, 1).update == 2


@pytest.mark.slow
def test_a_schedule_may_be_made_of_traced_numbers():
    def rate(peak):
        config = dataclasses.replace(CONFIG, learning_rate=optax.linear_schedule(peak, 0.0, STEPS))
        trainer = Trainer(ENV, config)
        state = trainer.init(make_model(jax.random.key(0)), jax.random.key(1))
        return trainer.run_updates(state, jnp.int32(2), jnp.int32(2))[0].totals.diagnostics.lr.high

    peaks = jnp.array([1e-3, 1e-2])
    small, large = jax.jit(jax.vmap(rate))(peaks)
    np.testing.assert_allclose(large, 10 * small, rtol=1e-5)


@pytest.mark.slow
def test_the_count_of_steps_ends_where_optax_ends_it():
    counts = dataclasses.replace(CONFIG, learning_rate=lambda step: step / 2.0**31)
    learner = eqx.tree_at(
        lambda learner: learner.num_updates,
        begin(Trainer(ENV, counts)).learner,
        jnp.int32(2**31 - 1),
    )
    run = eqx.filter_jit(lambda learner: update(VectorEnv(ENV, 8), counts, learner, jnp.int32(1)))
    np.testing.assert_allclose(run(learner)[2].lr, 1.0)
