"""A learner against a copy of itself: when the copy is renewed, and how it is kept."""

import itertools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array, Int, Key

from ppo_mask.checkpoints import RunDir
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import SelfPlay, Trainer, TrainState
from ppo_mask.training._trainer import run_chunk

CONFIG = PPO(
    num_envs=8,
    num_steps=8,
    num_minibatches=2,
    update_epochs=1,
    learning_rate=0.03,
    normalize_observations=True,  # The copy has its own statistics.
)
EVERY = 3


class Duel(AbstractEnv[Int[Array, ""]]):
    """One of three things each, at once; the first is forbidden at times. Without an opponent the
    other side always takes the first.
    """

    opponent: AbstractActorCritic | None = None
    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key: Key[Array, ""]) -> tuple[Array, TimeStep]:
        forbidden = jax.random.randint(key, (), 0, 3).astype(jnp.int32)
        return forbidden, self._show(forbidden, jnp.float32(0), False)

    def step(self, key: Key[Array, ""], state: Array, action: Any) -> tuple[Array, TimeStep]:
        theirs = jnp.int32(0)
        if self.opponent is not None:
            shown = self._show(state, jnp.float32(0), False)
            distribution, _ = self.opponent(shown.observation, shown.action_mask)
            theirs = distribution.sample(key)
        reward = jnp.array([0.0, 1.0, -1.0])[(action - theirs) % 3]
        return state, self._show(state, reward, True)

    def _show(self, forbidden: Array, reward: Array, done: bool) -> TimeStep:
        mask = (jnp.arange(3) > 0) | (forbidden > 0) | done
        return TimeStep(
            observation=jax.nn.one_hot(forbidden, 3),
            action_mask=mask,
            reward=reward,
            terminated=jnp.array(done),
            truncated=jnp.array(False),
            info={},
        )


def find_opponent(env: Any) -> Any:
    return env.opponent


def make_model(key: Array) -> MLPActorCritic:
    return MLPActorCritic(3, 3, 8, 1, key=key)


def train(updates: int, state: TrainState | None = None, every: int = EVERY) -> TrainState:
    trainer = Trainer(Duel(), CONFIG, curriculum=SelfPlay(find_opponent, every))
    if state is None:
        state = trainer.init(make_model(jax.random.key(0)), jax.random.key(1))
    return trainer.train(state, updates * CONFIG.batch_size)


def copy_of(state: TrainState, number: int = 0) -> Any:
    """One of the older copies."""
    copies: Any = state.memory.copies
    return jax.tree.map(lambda x: x[number] if eqx.is_array(x) else x, copies)


@pytest.fixture(scope="module")
def states() -> list[TrainState]:
    """After each of seven updates, each trained on from the one before."""
    states = [train(0)]
    for updates in range(1, 8):
        states.append(train(updates, states[-1]))
    return states


def test_a_copy_is_renewed_when_it_is_due_and_only_then(states):
    models = [state.model for state in states]
    assert not any(eqx.tree_equal(*pair) for pair in itertools.pairwise(models))
    for updates in range(1, 8):
        # The copy that update n was made against is from the last multiple of three before it.
        due = (updates - 1) // EVERY * EVERY
        assert eqx.tree_equal(copy_of(states[updates]), models[due])


@pytest.mark.slow
def test_a_stop_changes_nothing_and_the_opponent_matters(states):
    assert eqx.tree_equal(train(7), states[7])
    assert not eqx.tree_equal(train(7, every=100).model, states[7].model)
    alone = Trainer(Duel(), CONFIG)
    state = alone.init(make_model(jax.random.key(0)), jax.random.key(1))
    state = alone.train(state, 7 * CONFIG.batch_size)
    assert not eqx.tree_equal(state.model, states[7].model)


def test_a_copy_is_in_the_checkpoint(states, tmp_path):
    store = RunDir(tmp_path)
    store.save(5, states[5], {}, None, False)
    restored = store.checkpoint(5).restore(jax.eval_shape(lambda: states[0]))
    assert eqx.tree_equal(restored, states[5])
    assert eqx.tree_equal(train(7, restored), states[7])


def test_a_renewal_compiles_nothing(states):
    before = run_chunk._cached._cache_size()
    train(7, states[0])
    assert run_chunk._cached._cache_size() == before


def test_the_first_opponent_is_the_network_that_training_begins_with(states):
    # As --initial-policy does it: another network in a state that has been made.
    loaded = jax.tree.map(lambda x: x + 1 if eqx.is_inexact_array(x) else x, states[0].model)
    state = eqx.tree_at(lambda state: state.model, states[0], loaded)
    assert eqx.tree_equal(copy_of(train(1, state)), loaded)


def test_what_cannot_be_is_refused(states):
    with pytest.raises(ValueError, match="every must be at least 1, got 0"):
        SelfPlay(find_opponent, 0)
    with pytest.raises(ValueError, match="a Trainer with another curriculum: begin"):
        Trainer(Duel(), CONFIG).train(states[3], 7 * CONFIG.batch_size)
