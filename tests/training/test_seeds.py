"""Several seeds in one program are what each of them is alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import CartPole
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import (
    Callback,
    Metric,
    Trainer,
    TrainingError,
    init_seeds,
    select_seed,
    train_seeds,
)

_METRICS = {"actions/low": Metric(lambda action, info: action < 16)}
_EVERYTHING = {
    "normalize_observations": True,
    "normalize_rewards": True,
    "target_kl": 1e-5,
    "gradient_accumulation": 2,
}


class _Recorder(Callback):
    def __init__(self):
        self.records = []

    def on_log(self, run, record):
        self.records.append(record)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("env", "size", "more"),
    [(MaskedLocks(), 1, {}), (CartPole(), 4, _EVERYTHING)],
    ids=["plain", "everything"],
)
def test_four_seeds_in_one_program_are_four_runs(env, size, more):
    config = PPOConfig(num_envs=4, num_steps=16, anneal_lr=True, learning_rate=1e-3, **more)

    def make_model(key):
        return MLPActorCritic(size, env.num_actions, 8, 1, key=key)

    keys = jax.random.split(jax.random.key(3), 4)
    states = init_seeds(Trainer(env, config, metrics=_METRICS), make_model, keys)
    # In two goes, the second of which ends between two log lines.
    states, first = train_seeds(
        Trainer(env, config, metrics=_METRICS), states, 4 * config.batch_size, log_interval=2
    )
    states, then = train_seeds(
        Trainer(env, config, metrics=_METRICS), states, 5 * config.batch_size, log_interval=2
    )
    for seed, key in enumerate(keys):
        model_key, init_key = jax.random.split(key)
        recorder = _Recorder()
        state = Trainer(env, config, metrics=_METRICS).init(make_model(model_key), init_key)
        for total in (4, 5):
            trainer = Trainer(env, config, metrics=_METRICS)
            steps = total * config.batch_size
            state = trainer.train(state, steps, callbacks=[recorder], log_interval=2)
        ours = select_seed(states, seed)
        assert jax.tree.structure(ours) == jax.tree.structure(state)
        for x, y in zip(jax.tree.leaves(ours.model), jax.tree.leaves(state.model), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)
        assert [r.update for r in recorder.records] == [2, 4, 5]
        for one, other in zip(
            first[seed].records + then[seed].records, recorder.records, strict=True
        ):
            assert (one.update, one.env_steps) == (other.update, other.env_steps)
            assert one.values.keys() == other.values.keys()
            for name in other.values.keys() - {"train/steps_per_second"}:
                x = other.values[name]
                np.testing.assert_allclose(one.values[name], x, rtol=1e-3, atol=1e-4, err_msg=name)
    values = [log["train/total_loss"][0] for log in first]
    assert len(set(values)) == 4


def test_the_states_given_stay_usable_and_nothing_is_compiled_twice():
    traced = []

    class Counting(CartPole):
        def step(self, key, state, action):
            traced.append(1)
            return super().step(key, state, action)

    env, config = Counting(), PPOConfig(num_envs=4, num_steps=8)
    keys = jax.random.split(jax.random.key(0), 2)
    states = init_seeds(Trainer(env, config), lambda key: MLPActorCritic(4, 2, 8, 1, key=key), keys)
    train_seeds(Trainer(env, config), states, 1 * config.batch_size)
    once = len(traced)
    more, _ = train_seeds(Trainer(env, config), states, 3 * config.batch_size, log_interval=1)
    train_seeds(Trainer(env, config), more, 5 * config.batch_size)
    assert len(traced) == once


def test_a_seed_that_cannot_go_on_is_named():
    env, config = CartPole(), PPOConfig(num_envs=4, num_steps=8)
    keys = jax.random.split(jax.random.key(0), 2)
    states = init_seeds(Trainer(env, config), lambda key: MLPActorCritic(4, 2, 8, 1, key=key), keys)

    def bias(states):
        return states.learner.model.critic[0].bias

    states = eqx.tree_at(bias, states, bias(states).at[1].set(jnp.nan))
    with pytest.raises(TrainingError, match="seed number 1, update 1: "):
        train_seeds(Trainer(env, config), states, 3 * config.batch_size)
    with pytest.raises(ValueError, match="log_interval must be at least 1, got 0"):
        train_seeds(Trainer(env, config), states, 3 * config.batch_size, log_interval=0)


@pytest.mark.slow
def test_callbacks_see_one_seed_and_those_of_all_see_means():
    env, config = CartPole(), PPOConfig(num_envs=4, num_steps=8)
    keys = jax.random.split(jax.random.key(0), 2)
    states = init_seeds(Trainer(env, config), lambda key: MLPActorCritic(4, 2, 8, 1, key=key), keys)

    class Looking(_Recorder):
        def __init__(self, every):
            super().__init__()
            self.every, self.seen, self.reasons = every, {}, []

        def next_update(self, update):
            return (update // self.every + 1) * self.every

        def on_chunk(self, run, state, progress):
            self.seen[run.update] = np.asarray(state.model.critic[0].weight)
            if self.every == 3 and run.update == 6:
                run.request_stop("enough")

        def on_stop(self, run, state, reason):
            self.reasons.append((run.update, reason))

    first, second, means = Looking(2), Looking(3), Looking(100)
    after, logs = train_seeds(
        Trainer(env, config),
        states,
        50 * config.batch_size,
        callbacks=[[first], [second]],
        of_all=[means],
        log_interval=4,
    )
    assert first.reasons == second.reasons == means.reasons == [(6, "enough")]
    assert {2, 4, 6} <= first.seen.keys()
    assert {3, 6} <= second.seen.keys()
    assert first.seen[6].shape == (8, 4)
    np.testing.assert_array_equal(first.seen[6], after.model.critic[0].weight[0])
    np.testing.assert_array_equal(second.seen[6], after.model.critic[0].weight[1])
    assert [r.update for r in first.records] == [4]
    assert [log.records[0].values for log in logs] == [
        first.records[0].values,
        second.records[0].values,
    ]
    returns = [log["train/mean_episode_return"][0] for log in logs]
    line = means.records[0].values
    assert line["train/mean_episode_return"] == pytest.approx(np.mean(returns))
    assert line["seeds/return_std"] == pytest.approx(np.std(returns))
