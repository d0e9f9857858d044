"""Counters of a run that lasts a year: what they count to, and what happens where one is full."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from environments import Scripted
from ppo_mask.envs import VectorEnv, probes
from ppo_mask.training import Metric, summarize
from ppo_mask.training._metrics import Total, empty_totals

UPDATES, EVERYWHERE = 100_000, 1 << 20


def test_totals_lose_nothing_however_many_numbers():
    @jax.jit
    def add(total, numbers):
        return jax.lax.scan(lambda total, x: (total.plus(x), None), total, numbers)[0]

    total = add(Total(), jnp.full(1000, 2**24 + 2, jnp.int32))
    total = add(total, jnp.full(1000, 0.5, jnp.float32))
    total = add(total, jnp.full(1000, 1, jnp.int8))
    assert float(total) == 1000 * (2**24 + 2) + 500 + 1000


def test_total_with_an_infinite_number_is_infinite():
    assert float(Total().plus(jnp.float32(jnp.inf)).plus(jnp.float32(1))) == jnp.inf


def test_mean_reward_of_many_billion_steps_is_right():
    # 10^11 steps of reward 0.5 between two log lines, in updates of a million.
    metrics = {"half": Metric(lambda action, info: 0.5)}
    totals = empty_totals(metrics, pm.ppo.UpdateDiagnostics.zeros())
    number, steps = jnp.int32(EVERYWHERE), totals.steps

    def update(_, steps):
        added = (number, number, number / 2, number / 2, number, number / 2)
        parts = lambda s: (  # noqa: E731
            s.steps, s.episodes, s.reward, s.episode_return, s.episode_length, s.metrics["half"],
        )  # fmt: skip
        return eqx.tree_at(
            parts,
            steps,
            tuple(x.plus(y) for x, y in zip(parts(steps), added, strict=True)),
            is_leaf=lambda x: isinstance(x, Total),
        )

    steps = jax.jit(lambda steps: jax.lax.fori_loop(0, UPDATES, update, steps))(steps)
    totals = eqx.tree_at(lambda t: (t.steps, t.updates), totals, (steps, jnp.int32(UPDATES)))
    values = summarize(totals, metrics)
    assert values["train/num_episodes"] == UPDATES * EVERYWHERE
    for name in ("train/mean_reward", "train/mean_episode_return", "half"):
        assert values[name] == 0.5
    assert values["train/mean_episode_length"] == 1


@pytest.fixture(scope="module")
def trainer():
    env = probes.ConstantValue()
    return pm.Trainer(env, pm.PPOConfig(num_envs=2, num_steps=2, num_minibatches=1, anneal_lr=True))


@pytest.fixture(scope="module")
def start(trainer):
    model = pm.MLPActorCritic.for_env(trainer.env, hidden_dim=4, key=jax.random.key(0))
    return trainer.init(model, jax.random.key(1))


class StopSoon(pm.Callback):
    def next_update(self, update):
        return update + 1

    def on_chunk(self, run, state, progress):
        run.request_stop("enough")


@pytest.mark.parametrize("steps", [10**12, 10**15, 3 * 10**14])
def test_run_of_any_number_of_steps_begins(trainer, start, steps):
    history = pm.History()
    state = trainer.train(start, steps, callbacks=[StopSoon(), history], log_interval=1)
    assert int(state.update) == 1
    assert history["train/lr"][0] == pytest.approx(2.5e-4)


def test_updates_are_counted_past_31_bits(trainer, start):
    before = eqx.tree_at(lambda s: s.learner.num_updates, start, jnp.int32(2**31 - 2))
    history = pm.History()
    state = trainer.train(before, 4 * (2**31 + 2), callbacks=[history], log_interval=1)
    assert int(state.update) == 2**31 + 2
    assert history.steps.tolist() == [4 * (2**31 - 1 + i) for i in range(4)]
    assert np.all(history["train/lr"] >= 0)


def test_annealing_is_right_past_31_bits(trainer, start):
    late = eqx.tree_at(lambda s: s.learner.num_updates, start, jnp.int32(-(2**31)))
    history = pm.History()
    trainer.train(late, 4 * 2**32, callbacks=[StopSoon(), history], log_interval=1)
    assert history["train/lr"][0] == pytest.approx(2.5e-4 / 2)


def test_length_of_an_endless_episode_stays_at_the_most():
    env = VectorEnv(Scripted(), 1)
    state, _ = env.reset(jax.random.key(0))
    most = jnp.full(1, 2**31 - 1, jnp.int32)
    state = eqx.tree_at(lambda s: s.episode_length, state, most)
    _, timestep = env.step(jax.random.key(0), state, jnp.zeros(1, jnp.int32))
    assert timestep.episode_length.tolist() == [2**31 - 1]


def test_time_limit_that_cannot_be_counted_is_refused():
    with pytest.raises(ValueError, match="max_steps must be at most 2147483647, got 2147483648"):
        pm.TimeLimit(probes.ConstantValue(), 2**31)
