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


_STEPS = [[0, 0, 0], [1, 1, 1], [2, 2, 1], [1, 3, 2], [2, 1, 3], [3, 2, 1]]
_NO = [0, 0, 0]
_SHOWN = {
    # The new episode's where one ended; final_observation is what the step led to.
    "observation": [_NO, [1, 1, 0], [0, 2, 1], [1, 0, 2], [2, 1, 0], [3, 2, 1]],
    "action_mask": [3 * [[1, 0, 0, 0]]] * 6,
    "final_observation": _STEPS,
    "info": _STEPS,
    "terminated": [_NO, [0, 0, 1], [1, 0, 0], _NO, [0, 0, 1], _NO],
    "truncated": [_NO, _NO, _NO, [0, 1, 0], [0, 0, 1], _NO],
    "reward": _STEPS,
    "episode_return": [_NO, [1, 1, 1], [3, 3, 1], [1, 6, 3], [3, 1, 6], [6, 3, 1]],
    "episode_length": _STEPS,
}
"""After the reset and each step, for each environment."""


@pytest.mark.parametrize("name", _SHOWN)
def test_each_step_shows_what_was_counted_by_hand(steps, name):
    shown = [getattr(step, name) for step in steps]
    rows = [x["steps"] if name == "info" else x for x in shown]
    np.testing.assert_array_equal(np.reshape(rows, np.shape(_SHOWN[name])), _SHOWN[name])


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
    own = [True, False, False, False]  # A limit leaves the environment's mask as it is.
    assert seen == [(False, own), (False, own), (cut, own if cut else [True] * 4)]
