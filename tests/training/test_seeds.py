"""Several seeds in one program are what each of them is alone."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
import programs
from ppo_mask.training import PerSeed, _seeds, _trainer, select_seed


def train(program, updates, states=None, **options):
    states = program.seeds if states is None else states
    logs = [pm.History(), pm.History()]
    callbacks = [[log, *own] for log, own in zip(logs, options.pop("own", ([], [])), strict=True)]
    seeds = [PerSeed(callbacks), *options.pop("of_all", ())]
    steps = program.steps(updates)
    return program.trainer.train(states, steps, callbacks=seeds, **options), logs


@pytest.mark.parametrize(
    "make", [programs.locks, pytest.param(programs.doors, marks=pytest.mark.slow)]
)
def test_seeds_in_one_program_are_runs_of_their_own(make):
    program = make()
    # In two goes, the second of which ends between two log lines.
    states, first = train(program, 4, log_interval=2)
    size = _trainer.run_chunk._cached._cache_size
    before = size()
    states, then = train(program, 5, states, log_interval=2)
    assert size() == before > 0
    assert program.seeds.update.tolist() == [0, 0]  # The states given stay usable.
    for seed, key in enumerate(jax.random.split(jax.random.key(3), 2)):
        model_key, init_key = jax.random.split(key)
        state = program.trainer.init(program.make_model(model_key), init_key)
        records = []
        for updates in (4, 5):
            state, history = program.train(updates, state, log_interval=2)
            records += history.records
        ours = select_seed(states, seed)
        assert jax.tree.structure(ours) == jax.tree.structure(state)
        for x, y in zip(jax.tree.leaves(ours.model), jax.tree.leaves(state.model), strict=True):
            np.testing.assert_allclose(x, y, atol=1e-4)
        assert [r.update for r in records] == [2, 4, 5]
        for one, other in zip(first[seed].records + then[seed].records, records, strict=True):
            assert (one.update, one.env_steps) == (other.update, other.env_steps)
            assert one.values.keys() == other.values.keys()
            for name in other.values.keys() - {"train/steps_per_second"}:
                x = other.values[name]
                np.testing.assert_allclose(one.values[name], x, rtol=1e-3, atol=1e-4, err_msg=name)
    assert len({log["train/total_loss"][0] for log in first}) == 2


def test_a_seed_that_cannot_go_on_is_named():
    program = programs.locks()

    def bias(states):
        return states.model.network.critic[0].bias

    states = eqx.tree_at(bias, program.seeds, bias(program.seeds).at[1].set(jnp.nan))
    with pytest.raises(pm.TrainingError, match="seed number 1, update 1: "):
        train(program, 3, states)
    with pytest.raises(ValueError, match="log_interval must be at least 1, got 0"):
        train(program, 3, log_interval=0)
    with pytest.raises(ValueError, match="PerSeed has 1 lists of callbacks, and there are 2 seeds"):
        program.trainer.train(program.seeds, program.steps(3), callbacks=[PerSeed([[]])])


def test_a_number_that_is_no_array_is_that_of_all_seeds():
    states = {"array": jnp.arange(2), "rate": 0.5, "inference": True}
    assert select_seed(states, 1) == {"array": 1, "rate": 0.5, "inference": True}


@pytest.mark.parametrize("seed", [2, 99, -3])
def test_a_seed_that_is_not_there_is_not_another(seed):
    with pytest.raises(IndexError, match=f"there are 2 seeds, numbered from 0, and no seed {seed}"):
        select_seed({"array": jnp.arange(2)}, seed)


def test_means_are_over_the_seeds_that_have_the_metric():
    lines = [{"a": 1.0}, {"a": 3.0, "train/mean_episode_return": 5.0}]
    means = {"a": 2.0, "train/mean_episode_return": 5.0, "seeds/return_std": 0.0}
    assert _seeds.mean_line(lines) == means


def test_callbacks_see_one_seed_and_those_of_all_see_means():
    class Looking(pm.Callback):
        def __init__(self, every):
            self.every, self.seen, self.reasons, self.records = every, {}, [], []

        def next_update(self, update):
            return (update // self.every + 1) * self.every

        def on_start(self, run, state):
            run.log({"mine/every": self.every})

        def on_log(self, run, record):
            self.records.append(record)

        def on_chunk(self, run, state, progress):
            self.seen[run.update] = np.asarray(state.model.network.critic[0].weight)
            if self.every == 3 and run.update == 6:
                run.request_stop("enough")

        def on_stop(self, run, state, reason):
            self.reasons.append((run.update, reason, run.stop_reason))

    first, second, means = Looking(2), Looking(3), Looking(100)
    after, logs = train(
        programs.locks(), 50, own=[[first], [second]], of_all=[means], log_interval=4
    )
    # The others' runs hear of it too.
    assert first.reasons == second.reasons == means.reasons == [(6, "enough", "enough")]
    assert {2, 4, 6} <= first.seen.keys()
    assert {3, 6} <= second.seen.keys()
    assert first.seen[6].shape == (8, 1)
    np.testing.assert_array_equal(first.seen[6], after.model.network.critic[0].weight[0])
    np.testing.assert_array_equal(second.seen[6], after.model.network.critic[0].weight[1])
    assert [r.update for r in first.records] == [0, 4]
    assert [log.records for log in logs] == [first.records, second.records]
    starts = [each.records[0].values for each in (first, second, means)]
    assert starts == [{"mine/every": each} for each in (2, 3, 100)]
    returns = [log["train/mean_episode_return"][1] for log in logs]
    line = means.records[1].values
    assert line["train/mean_episode_return"] == pytest.approx(np.mean(returns))
    assert line["seeds/return_std"] == pytest.approx(np.std(returns))
