"""Vectors of Gymnasium, of every kind of autoreset, behave as their environments do by hand."""

import multiprocessing
import os
import signal
from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import ppo_mask as pm
from environments import Scripted
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.errors import RunError
from python_games import Climb, InInfo, Wrong

MODES = list(AutoresetMode)


def sync(mode, make, n):
    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def forked(mode, make, n):
    return AsyncVectorEnv([make] * n, autoreset_mode=mode, context="spawn")


def play(env, steps=50):
    vector = pm.VectorEnv(env, 3)
    state, timestep = vector.reset(jax.random.key(0))
    step, shown = jax.jit(vector.step), [timestep]
    for number in range(steps):
        mask = np.asarray(timestep.action_mask)
        actions = np.where(
            np.arange(3) + number % 3 < 3, mask.argmax(1), 4 - mask[:, ::-1].argmax(1)
        )
        state, timestep = step(jax.random.key(number), state, jnp.asarray(actions, jnp.int32))
        shown.append(timestep)
    return shown


def assert_same(ours, theirs):
    assert sum(int(timestep.ended.sum()) for timestep in ours) > 3
    for one, other in zip(ours, theirs, strict=True):
        jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("limit", [None, 6])
def test_sync_vector_equals_its_environments(mode, limit):
    def make():
        return Climb() if limit is None else gymnasium.wrappers.TimeLimit(Climb(), limit)

    env = GymnasiumEnv.of_vectors(partial(sync, mode, make), infos=["cards"])
    assert_same(play(env), play(GymnasiumEnv(make, infos=["cards"])))


def test_processes_of_a_vector_outlive_the_terminal():
    env = GymnasiumEnv.of_vectors(partial(forked, AutoresetMode.NEXT_STEP, Climb))
    vector = pm.VectorEnv(env, 2)
    state, timestep = vector.reset(jax.random.key(0))
    for process in multiprocessing.active_children():
        for number in (signal.SIGINT, signal.SIGHUP):
            os.kill(process.pid, number)
    actions = timestep.action_mask.argmax(1).astype(jnp.int32)
    for _ in range(3):
        state, timestep = vector.step(jax.random.key(1), state, actions)
        actions = timestep.action_mask.argmax(1).astype(jnp.int32)
    assert np.isfinite(timestep.reward).all()
    env.close()


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_async_vector_equals_its_environments(mode):
    env = GymnasiumEnv.of_vectors(partial(forked, mode, Climb))
    assert_same(play(env), play(GymnasiumEnv(Climb)))
    env.close()


@pytest.mark.parametrize("mode", MODES)
def test_mask_in_info_of_a_vector_is_found(mode):
    make = lambda: InInfo(Climb())  # noqa: E731
    assert_same(play(GymnasiumEnv.of_vectors(partial(sync, mode, make))), play(GymnasiumEnv(Climb)))


def test_vectors_of_one_class_do_not_mix_their_modes():
    envs = [GymnasiumEnv.of_vectors(partial(sync, mode, Climb)) for mode in MODES]
    for env in envs:
        assert_same(play(env), play(envs[0]))


@pytest.mark.parametrize("mode", MODES)
def test_evaluation_cuts_a_vector_off(mode):
    env = GymnasiumEnv.of_vectors(partial(sync, mode, Climb), flatten=True)
    alone = GymnasiumEnv(Climb, flatten=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    results = [
        pm.evaluate(model, x, jax.random.key(0), 6, num_envs=3, max_steps=5) for x in (env, alone)
    ]
    np.testing.assert_array_equal(results[0].episode_return, results[1].episode_return)
    assert results[0].episode_length.tolist() == [5] * 6


class Counter(gymnasium.vector.VectorEnv):
    """Written as a vector: environment i ends after i + 2 steps, and is reset in the next step."""

    def __init__(self, num_envs, mode=AutoresetMode.NEXT_STEP):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        assert seed is None or isinstance(seed, int)
        self.count = np.full(self.num_envs, 10)
        return self._look(), {}

    def step(self, actions):
        begins = self.count >= 12 + np.arange(self.num_envs)
        self.count = np.where(begins, 10, self.count + 1)
        ended = self.count >= 12 + np.arange(self.num_envs)
        reward = np.where(begins, 0, 1.0)
        return self._look(), reward, ended, np.zeros_like(ended), {}

    def _look(self):
        return self.count.astype(np.float32)[:, None]


def test_step_that_only_resets_is_marked():
    vector = pm.VectorEnv(GymnasiumEnv.of_vectors(Counter), 2)
    state, timestep = vector.reset(jax.random.key(0))
    rows = []
    for _ in range(6):
        state, timestep = vector.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))
        rows.append(
            (
                float(timestep.final_observation[0, 0]),
                float(timestep.observation[0, 0]),
                float(timestep.reward[0]),
                bool(timestep.terminated[0]),
                timestep.action_mask[0].tolist(),
            )
        )
    every, one = [True] * 3, [True, False, False]
    assert rows == [
        (11, 11, 1, False, every),
        (12, 0, 1, True, one),
        (10, 10, 0, False, every),
        (11, 11, 1, False, every),
        (12, 0, 1, True, one),
        (10, 10, 0, False, every),
    ]


def test_vector_that_cannot_be_cut_says_so():
    env = GymnasiumEnv.of_vectors(Counter, flatten=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    with pytest.raises(RunError, match=r"^Counter: an episode took more steps than asked for"):
        pm.evaluate(model, env, jax.random.key(0), 2, max_steps=1)
    assert pm.evaluate(model, env, jax.random.key(0), 2).episode_length.tolist() == [2, 3]


class Unfit(Counter):
    """Returns what it must not."""

    def __init__(self, num_envs, wrong):
        super().__init__(num_envs)
        self.wrong = wrong
        if wrong == "large":
            self.single_observation_space = gymnasium.spaces.Box(0, 9, (1,), np.int64)

    def _look(self):
        return np.full((self.num_envs, 1), 2**33 if self.wrong == "large" else 0)

    def step(self, actions):
        observation, reward, terminated, truncated, info = super().step(actions)
        if self.wrong == "four":
            return observation, reward, terminated, info
        return observation, [None] * self.num_envs, terminated, truncated, info


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ("large", "^Unfit: observation holds 8589934592, but it is kept as int32"),
        ("four", "^Unfit: step must return 5 values .*; got 4 values, as in the old Gym's API"),
        ("reward", r"^Unfit: rewards must be one number for each environment; got \[None"),
    ],
)
def test_what_a_vector_must_not_return_is_one_line(wrong, line):
    vector = pm.VectorEnv(GymnasiumEnv.of_vectors(partial(Unfit, wrong=wrong)), 2)

    def play():
        state, _ = vector.reset(jax.random.key(0))
        vector.step(jax.random.key(0), state, jnp.zeros(2, jnp.int32))

    with pytest.raises(RunError, match=line):
        play()


def test_our_own_vector_comes_back():
    def make(n):
        return ToGymnasiumVector(Scripted(), n)

    vector = pm.VectorEnv(GymnasiumEnv.of_vectors(make, infos=["steps"]), 3)
    state, timestep = vector.reset(jax.random.key(0))
    by_hand = make(3)
    by_hand.reset(seed=0)
    for actions in ([0, 0, 1], [1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 0]):
        state, timestep = vector.step(jax.random.key(0), state, jnp.array(actions, jnp.int32))
        observation, reward, terminated, truncated, info = by_hand.step(actions)
        np.testing.assert_array_equal(timestep.observation, observation)
        np.testing.assert_array_equal(timestep.action_mask, by_hand.action_masks())
        np.testing.assert_array_equal(timestep.reward, reward)
        np.testing.assert_array_equal(timestep.terminated, terminated)
        np.testing.assert_array_equal(timestep.truncated, truncated & ~terminated)
        for i in range(3):
            ended = terminated[i] or truncated[i]
            final = info["final_obs"][i] if ended else observation[i]
            np.testing.assert_array_equal(timestep.final_observation[i], final)
            steps = info["final_info"]["steps"][i] if ended else info["steps"][i]
            assert timestep.info["steps"][i] == steps


@pytest.mark.parametrize("mode", MODES)
def test_what_is_wrong_in_a_vector_is_one_line(mode):
    env = GymnasiumEnv.of_vectors(partial(sync, mode, lambda: Wrong("nothing")), flatten=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    with pytest.raises(RunError, match=r"^SyncVectorEnv: action_masks\(\) allows no action"):
        pm.evaluate(model, env, jax.random.key(0), 2)


def test_vector_of_another_size_is_refused():
    env = GymnasiumEnv.of_vectors(lambda n: Counter(1), flatten=True)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
    with pytest.raises(RunError, match=r"^Counter: has 1 environments; 2 were asked for"):
        pm.evaluate(model, env, jax.random.key(0), 2)
