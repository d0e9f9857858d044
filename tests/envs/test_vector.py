"""The one auto-reset, on a script with numbers counted by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import Scripted
from ppo_mask.envs import TimeLimit, VectorEnv

# One row per step: what each of three environments plays.
_SCRIPT = [[0, 0, 1], [1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 0]]


@pytest.fixture(scope="module")
def steps():
    env = VectorEnv(Scripted(), 3)
    state, first = env.reset(jax.random.key(0))
    steps, step = [first], jax.jit(env.step)
    for i, actions in enumerate(_SCRIPT):
        state, timestep = step(jax.random.key(i), state, jnp.array(actions))
        steps.append(timestep)
    return steps


def _rows(steps, get):
    return np.array([get(step) for step in steps])


def test_observation_is_the_new_episodes_where_one_ended(steps):
    got = _rows(steps, lambda s: s.observation[:, 0])
    want = [[0, 0, 0], [1, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0], [3, 2, 1]]
    np.testing.assert_array_equal(got, want)


def test_final_observation_is_what_the_step_led_to(steps):
    got = _rows(steps, lambda s: s.final_observation[:, 0])
    want = [[0, 0, 0], [1, 1, 1], [2, 2, 1], [1, 3, 2], [2, 1, 3], [3, 2, 1]]
    np.testing.assert_array_equal(got, want)


def test_mask_is_the_new_episodes_where_one_ended(steps):
    got = _rows(steps, lambda s: s.action_mask)
    np.testing.assert_array_equal(got, np.broadcast_to(np.arange(4) == 0, (6, 3, 4)))


def test_two_separate_flags(steps):
    no = [0, 0, 0]
    terminated = [no, [0, 0, 1], [1, 0, 0], no, [0, 0, 1], no]
    truncated = [no, no, no, [0, 1, 0], [0, 0, 1], no]
    np.testing.assert_array_equal(_rows(steps, lambda s: s.terminated), terminated)
    np.testing.assert_array_equal(_rows(steps, lambda s: s.truncated), truncated)


def test_episode_statistics_are_exact(steps):
    rewards = [[0, 0, 0], [1, 1, 1], [2, 2, 1], [1, 3, 2], [2, 1, 3], [3, 2, 1]]
    returns = [[0, 0, 0], [1, 1, 1], [3, 3, 1], [1, 6, 3], [3, 1, 6], [6, 3, 1]]
    lengths = [[0, 0, 0], [1, 1, 1], [2, 2, 1], [1, 3, 2], [2, 1, 3], [3, 2, 1]]
    np.testing.assert_array_equal(_rows(steps, lambda s: s.reward), rewards)
    np.testing.assert_array_equal(_rows(steps, lambda s: s.episode_return), returns)
    np.testing.assert_array_equal(_rows(steps, lambda s: s.episode_length), lengths)


def test_info_belongs_to_the_step_taken(steps):
    got = _rows(steps, lambda s: s.info["steps"])
    np.testing.assert_array_equal(got, _rows(steps, lambda s: s.final_observation[:, 0]))


def test_no_environments_is_refused():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        VectorEnv(Scripted(), 0)


@pytest.mark.parametrize(("length", "cut"), [(None, True), (3, False)])
def test_a_time_limit_truncates_what_has_not_ended(length, cut):
    env = TimeLimit(Scripted(length), 3)
    state, _ = env.reset(jax.random.key(0))
    seen = []
    for _ in range(3):
        state, timestep = env.step(jax.random.key(0), state, 0)
        seen.append((bool(timestep.truncated), timestep.action_mask.tolist()))
    going_on = (False, [True, False, False, False])
    assert seen == [going_on, going_on, (cut, [True] * 4)]
