"""What is stored, when, and with which keys."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import Scripted
from ppo_mask.acting import bootstrap_values, collect, next_values, start_rollout
from ppo_mask.envs import AbstractEnv, Actions, TimeLimit, TimeStep, VectorEnv
from ppo_mask.networks import (
    AbstractActorCritic,
    AbstractReader,
    MaskedCategorical,
    MLPActorCritic,
    Model,
    as_model,
)

KEY = jax.random.key(0)


class _Told(AbstractActorCritic):
    """Plays what the number of steps says; the value is 100 plus that number."""

    script: jax.Array

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        action = self.script[observation[0].astype(jnp.int32)]
        mask = jnp.arange(4) == action
        return MaskedCategorical(jnp.zeros(4), mask), 100 + observation[0]


@jax.jit
def _collect(script):
    """Seven steps."""
    env, model, key = VectorEnv(Scripted(), 2), as_model(_Told(script)), jax.random.key(0)
    return collect(env, model, start_rollout(env, model, key), key, 7)[1]


@pytest.mark.parametrize(("last", "final_value"), [(1, 0), (2, 103), (3, 0)])
def test_observation_is_from_before_the_action(last, final_value):
    transitions = _collect(jnp.array([0, 0, last]))
    steps = np.array([0, 1, 2, 0, 1, 2, 0])
    ends = steps == 2
    assert (transitions.decision.observation[..., 0] == steps[:, None]).all()
    assert (transitions.decision.value == 100 + steps[:, None]).all()
    assert (transitions.reward == steps[:, None] + 1).all()
    assert (transitions.decision.action == np.where(ends, last, 0)[:, None]).all()
    assert (transitions.ended == ends[:, None]).all()
    assert (transitions.final_value == np.where(ends, final_value, 0)[:, None]).all()


def test_the_next_rollout_continues_where_the_last_one_stopped():
    env, model = VectorEnv(Scripted(), 2), as_model(_Told(jnp.array([0, 0, 0, 0, 1])))
    state, key = start_rollout(env, model, jax.random.key(0)), jax.random.key(1)
    seen = []
    for _ in range(3):
        state, transitions = eqx.filter_jit(collect)(env, model, state, key, 4)
        seen.append(transitions)
    joined = jax.tree.map(lambda *x: jnp.concatenate(x)[:, 0], *seen)
    steps = np.arange(12) % 5
    np.testing.assert_array_equal(joined.decision.observation[:, 0], steps)
    np.testing.assert_array_equal(joined.episode_length, steps + 1)
    np.testing.assert_array_equal(joined.episode_return, (steps + 1) * (steps + 2) // 2)


class _KeyTeller(AbstractEnv[jax.Array]):
    """Shows every key it is given; episodes last three steps."""

    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        return (jnp.int32(0), key), self._timestep(key, key, False)

    def step(self, key, state, action):
        steps, reset_key = state
        return (steps + 1, reset_key), self._timestep(key, reset_key, steps + 1 >= 3)

    def _timestep(self, key, reset_key, terminated):
        return TimeStep(
            observation=jnp.zeros(1),
            action_mask=jnp.ones(2, bool),
            reward=jnp.float32(0),
            terminated=jnp.asarray(terminated),
            truncated=jnp.array(False),
            info={"key": jax.random.key_data(key), "reset": jax.random.key_data(reset_key)},
        )


def test_no_key_is_used_twice(monkeypatch):
    drawn = []

    of_key = Actions.uniform_numbers

    def spy(actions, key):
        jax.debug.callback(lambda k: drawn.append(tuple(np.array(k))), jax.random.key_data(key))
        return of_key(actions, key)

    monkeypatch.setattr(Actions, "uniform_numbers", spy)
    env = VectorEnv(_KeyTeller(), 4)
    model = as_model(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))

    @jax.jit  # Of its own: what was traced without a spy, or with this one, serves no other test.
    def play():
        return collect(
            env, model, start_rollout(env, model, jax.random.key(1)), jax.random.key(2), 9
        )

    _, transitions = play()
    jax.effects_barrier()
    stepped = [tuple(k) for k in np.array(transitions.info["key"]).reshape(-1, 2)]
    resets = {tuple(k) for k in np.array(transitions.info["reset"]).reshape(-1, 2)}
    assert len(drawn) == len(stepped) == 36
    assert len(resets) == 12
    assert len({*drawn, *stepped, *resets}) == 36 + 36 + 12


def test_no_bootstrap_is_compiled_without_truncation():
    model = as_model(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    key = jax.random.key(1)

    def products(env):
        env = VectorEnv(env, 4)
        run = jax.jit(lambda key: collect(env, model, start_rollout(env, model, key), key, 9))
        return run.lower(key).compile().as_text().count(" dot(")

    never = products(_KeyTeller())
    assert never > 0
    assert products(TimeLimit(_KeyTeller(), 5)) > never


class _Huge(AbstractActorCritic):
    """Values of actions, of which the last, always forbidden, is huge; the state's is the best."""

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        values = jnp.array([1.0, 2.0, 3.0, 1e9]) + observation[0]
        best = jnp.where(action_mask, values, -jnp.inf).max()
        return MaskedCategorical(values, action_mask), best


class _Masked(AbstractEnv[jax.Array]):
    """Counts its steps; which of three actions are allowed depends on the count."""

    num_actions: int = eqx.field(static=True, default=4)

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0))

    def step(self, key, state, action):
        return state + 1, self._show(state + 1)

    def _show(self, steps):
        mask = jnp.arange(4) < 1 + steps % 3
        return TimeStep(jnp.float32(steps)[None], mask, 0.0, False, False, {})


def test_a_forbidden_action_is_never_bootstrapped_from():
    """A time limit cuts an episode off; the best of the allowed actions is what counts there."""
    env, model = VectorEnv(TimeLimit(_Masked(), 4), 2), as_model(_Huge())
    key = jax.random.key(0)

    @jax.jit
    def act():
        state = start_rollout(env, model, key)
        state, transitions = collect(env, model, state, key, 7, keep_next=True)
        return transitions, next_values(transitions, bootstrap_values(model, state))

    transitions, values = act()
    steps = 1 + np.arange(7) % 4  # After the action; each fourth is the last of its episode.
    best = np.minimum(1 + steps % 3, 3) + steps
    np.testing.assert_array_equal(values, np.stack([best] * 2, axis=1))
    np.testing.assert_array_equal(transitions.truncated[:, 0], steps == 4)
    assert (np.asarray(transitions.final_value)[steps == 4] == 6).all()
    # What is kept on request says the same.
    np.testing.assert_array_equal(transitions.next_observation[..., 0], np.stack([steps] * 2, 1))
    allowed = np.arange(4) < 1 + steps[:, None] % 3
    np.testing.assert_array_equal(transitions.next_action_mask[:, 0], allowed)


class _Negative(AbstractReader):
    """Keeps of an observation what is below 0."""

    @property
    def hyperparameters(self):
        return {}

    def features(self, observation):
        return -observation


def test_the_state_after_a_step_is_kept_as_the_reader_has_it():
    env, model = VectorEnv(Scripted(), 2), Model(_Negative(), MLPActorCritic(1, 4, 4, key=KEY))

    @jax.jit
    def act():
        return collect(env, model, start_rollout(env, model, KEY), KEY, 7, keep_next=True)[1]

    transitions = act()
    assert (transitions.next_observation < 0).all()
    following = transitions.decision.observation[1:]
    same = np.asarray(transitions.next_observation[:-1] == following)
    np.testing.assert_array_equal(same[..., 0], ~np.asarray(transitions.ended[:-1]))


def test_the_state_after_a_step_is_not_kept_unasked():
    transitions = _collect(jnp.array([0, 0, 1]))
    assert transitions.next_observation is transitions.next_action_mask is None
