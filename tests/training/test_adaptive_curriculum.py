"""A curriculum with a memory: what it sees, what it changes, and how it is kept."""

from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import even_starts
from even_starts import CONFIG, EvenStarts, train
from marathon import Marathon
from ppo_mask.networks import MLPActorCritic
from ppo_mask.training import Trainer, TrainState, init_seeds, select_seed, train_seeds
from virtual_devices import printed_with


@pytest.fixture(scope="module")
def trained() -> TrainState:
    return train(6)


def test_a_memory_sees_every_step_and_decides(trained):
    memory = cast(Any, trained.memory)
    assert memory["steps"] == 6 * CONFIG.batch_size
    assert (memory["ends"] > 3).all()  # Without the curriculum all games begin in the first cell.


def test_a_stop_changes_no_memory(trained):
    halves = train(6, train(3))
    jax.tree.map(np.testing.assert_array_equal, trained.memory, halves.memory)


@pytest.mark.slow
def test_a_memory_on_two_devices_is_that_of_one(trained):
    on_two = _arrays(printed_with(2, even_starts.__file__))
    jax.tree.map(np.testing.assert_array_equal, trained.memory, on_two)


def _arrays(memory: dict[str, Any]) -> dict[str, np.ndarray]:
    return {name: np.asarray(value, np.float32) for name, value in memory.items()}


@pytest.mark.slow
def test_seeds_have_memories_of_their_own():
    trainer = Trainer(Marathon(), CONFIG, curriculum=EvenStarts())
    states = init_seeds(
        trainer,
        lambda key: MLPActorCritic(4, 2, 8, 1, key=key),
        jnp.stack([jax.random.key(seed) for seed in range(2)]),
    )
    states, _ = train_seeds(trainer, states, 4 * CONFIG.batch_size)
    one, other = (cast(Any, select_seed(states.memory, seed)) for seed in range(2))
    assert one["steps"] == other["steps"] == 4 * CONFIG.batch_size
    assert (one["ends"] != other["ends"]).any()


def test_a_state_of_another_curriculum_is_refused(trained):
    with pytest.raises(ValueError, match="a Trainer with another curriculum: begin"):
        Trainer(Marathon(), CONFIG).train(trained, 7 * CONFIG.batch_size)
