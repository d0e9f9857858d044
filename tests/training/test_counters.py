"""Counters of a run that lasts a year: what they count to, and what is refused."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from ppo_mask.errors import RunError
from ppo_mask.training._metrics import add_steps, no_steps, summarize
from ppo_mask.training._rules import MAX_COUNT

LOCKS = programs.locks()
STEPS = LOCKS.config.batch_size


def test_no_step_and_no_episode_is_lost_between_two_log_lines():
    """Beyond 2**24 a float32 does not count on."""
    _, timestep = jax.eval_shape(
        lambda: (env := pm.VectorEnv(LOCKS.env, 4)).step(
            jax.random.key(0), env.reset(jax.random.key(0))[0], jnp.zeros(4, jnp.int32)
        )
    )
    timestep = jax.tree.map(lambda x: jnp.ones(x.shape, x.dtype), timestep)
    begun = eqx.tree_at(lambda sums: sums.counts, no_steps({}), jnp.int32([2**25, 2**24, 1]))
    counted = jnp.array([True, True, True, False])
    sums = jax.jit(lambda sums: add_steps(sums, {}, jnp.zeros(4, int), timestep, counted))(begun)
    assert sums.counts.tolist() == [2**25 + 3, 2**24 + 3, 1]
    assert summarize(sums)["eval/num_episodes"] == 2**24 + 3


def at(updates):
    return eqx.tree_at(lambda s: s.update, LOCKS.start, jnp.int32(updates))


def test_updates_are_counted_to_the_last():
    state, history = LOCKS.train(MAX_COUNT, at(MAX_COUNT - 3))
    assert int(state.update) == MAX_COUNT
    assert history.steps.tolist() == [STEPS * (MAX_COUNT - n) for n in (2, 1, 0)]
    assert np.all(history["train/lr"] >= 0)


def test_annealing_is_right_late_in_a_long_run():
    class StopSoon(pm.Callback):
        def on_chunk(self, run, state, progress):
            run.request_stop("enough")

    _, history = LOCKS.train(MAX_COUNT, at(2**30), [StopSoon()])
    assert history["train/lr"][0] == pytest.approx(1e-3 / 2)


def test_more_than_can_be_counted_is_refused_in_one_line():
    with pytest.raises(RunError, match="steps are 2,147,483,648 updates of 64, and a run"):
        LOCKS.trainer.train(LOCKS.start, STEPS * MAX_COUNT + 1)
    with pytest.raises(RunError, match="would cover 2,147,483,648 steps, and can cover at"):
        LOCKS.train(2**26, log_interval=2**25)
    assert LOCKS.train(1, log_interval=2**25)[0].update == 1  # No line is so long.
