"""A learner against a copy of itself: when the copy is renewed, and how it is kept."""

import itertools

import equinox as eqx
import jax
import numpy as np
import pytest

import duel
from duel import CONFIG, Duel, find_opponent, make_model, numbers, train
from ppo_mask.checkpoints import CheckpointStore, restore
from ppo_mask.training import SelfPlay, Trainer, TrainState
from ppo_mask.training._trainer import run_chunk
from virtual_devices import printed_with


@pytest.fixture(scope="module")
def states() -> list[TrainState]:
    """After each of seven updates, each trained on from the one before."""
    states = [train(0)]
    for updates in range(1, 8):
        states.append(train(updates, states[-1]))
    return states


def test_a_copy_is_renewed_when_it_is_due_and_only_then(states):
    models = [numbers(state.model) for state in states]
    assert all(one != other for one, other in itertools.pairwise(models))
    for updates in range(1, 8):
        # The copy that update n was made against is from the last multiple of three before it.
        assert numbers(states[updates].memory) == models[(updates - 1) // duel.EVERY * duel.EVERY]


@pytest.mark.slow
def test_a_stop_changes_nothing_and_the_opponent_matters(states):
    assert numbers(train(7)) == numbers(states[7])
    assert numbers(train(7, every=100).model) != numbers(states[7].model)
    alone = Trainer(Duel(), CONFIG)
    state = alone.init(make_model(jax.random.key(0)), jax.random.key(1))
    state = alone.train(state, 7 * CONFIG.batch_size)
    assert numbers(state.model) != numbers(states[7].model)


def test_a_copy_is_in_the_checkpoint(states, tmp_path):
    store = CheckpointStore(tmp_path)
    store.save(5, states[5], {}, None, False)
    restored = restore(store.path(5), jax.eval_shape(lambda: states[0]))
    assert numbers(restored) == numbers(states[5])
    assert numbers(train(7, restored)) == numbers(states[7])


def test_a_renewal_compiles_nothing(states):
    before = run_chunk._cached._cache_size()
    train(7, states[0])
    assert run_chunk._cached._cache_size() == before


@pytest.mark.slow
def test_copies_on_two_devices_are_those_of_one(states):
    on_two = printed_with(2, duel.__file__)
    for name, ours in [("memory", states[7].memory), ("model", states[7].model)]:
        for mine, theirs in zip(numbers(ours), on_two[name], strict=True):
            np.testing.assert_allclose(theirs, mine, rtol=1e-4, atol=1e-5)


def test_the_first_opponent_is_the_network_that_training_begins_with(states):
    # As --initial-policy does it: another network in a state that has been made.
    loaded = jax.tree.map(lambda x: x + 1 if eqx.is_inexact_array(x) else x, states[0].model)
    state = eqx.tree_at(lambda state: state.learner.model, states[0], loaded)
    assert numbers(train(1, state).memory) == numbers(loaded)


def test_what_cannot_be_is_refused(states):
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        SelfPlay(find_opponent, 0)
    with pytest.raises(ValueError, match="a Trainer with another curriculum: begin"):
        Trainer(Duel(), CONFIG).train(states[3], 7 * CONFIG.batch_size)
