"""Vectors of Gymnasium, of every kind of autoreset, behave as their environments do by hand."""

import multiprocessing
import os
import signal
from functools import cache, partial

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

import ppo_mask as pm
from playing import play_without_jax, played_on_host
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.errors import RunError
from python_games import Climb, InInfo, InvalidParts, Wrong

MODES = list(AutoresetMode)
KEY = jax.random.key(0)


def limited():
    return gymnasium.wrappers.TimeLimit(Climb(), 6)


def sync(make, mode, n):
    return SyncVectorEnv([make] * n, autoreset_mode=mode)


def spawned(mode, n):
    return AsyncVectorEnv([Climb] * n, autoreset_mode=mode, context="spawn")


def with_cards(how, make):
    return how(make, infos=["cards"])


@cache
def played_alone(make):
    return played_on_host(with_cards(GymnasiumEnv, make))


def without_cut_masks(timestep):
    """A vector that resets within a step does not say which mask the last state had."""
    mask = timestep.final_action_mask | timestep.truncated[:, None]
    return vars(timestep) | {"final_action_mask": mask}


def assert_as_alone(env, make):
    both = played_on_host(env), played_alone(make)
    ours, theirs = (list(map(without_cut_masks, played)) for played in both)
    assert sum((timestep["terminated"] | timestep["truncated"]).sum() for timestep in ours) > 3
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("make", [Climb, limited, InvalidParts])
def test_sync_vector_equals_its_environments(make):
    # All are made first: vectors of one class share their metadata.
    for env in [with_cards(GymnasiumEnv.of_vectors, partial(sync, make, mode)) for mode in MODES]:
        assert_as_alone(env, make)


@pytest.mark.parametrize("mode", MODES)
def test_mask_in_info_of_a_vector_is_found(mode):
    make = partial(sync, lambda: InInfo(Climb()), mode)
    assert_as_alone(with_cards(GymnasiumEnv.of_vectors, make), Climb)


class Own(gymnasium.vector.VectorWrapper):
    def action_masks(self):
        return np.array(self.env.unwrapped.call("action_masks"))


@pytest.mark.parametrize("inner", [gymnasium.wrappers.vector.RecordEpisodeStatistics, Own])
def test_masks_are_found_through_the_wrappers_of_a_vector(inner):
    wrapper = partial(gymnasium.wrappers.vector.ClipReward, min_reward=-9, max_reward=9)
    make = lambda n: wrapper(inner(sync(Climb, AutoresetMode.NEXT_STEP, n)))  # noqa: E731
    assert_as_alone(with_cards(GymnasiumEnv.of_vectors, make), Climb)


@pytest.mark.parametrize("mode", MODES)
def test_a_limit_of_this_library_cuts_a_vector_off(mode):
    inside = with_cards(GymnasiumEnv.of_vectors, partial(sync, Climb, mode))
    assert_as_alone(pm.TimeLimit(inside, 6), limited)


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_async_vector_equals_its_environments_and_outlives_the_terminal(mode):
    with with_cards(GymnasiumEnv.of_vectors, partial(spawned, mode)) as env:
        vector = pm.VectorEnv(env, 3)
        state, timestep = vector.reset(KEY)
        children = multiprocessing.active_children()
        assert len(children) >= 3
        for process in children:
            for number in (signal.SIGINT, signal.SIGHUP):
                os.kill(process.pid, number)
        vector.step(KEY, state, timestep.action_mask.argmax(axis=1))
        assert_as_alone(env, Climb)


class Counter(gymnasium.vector.VectorEnv):
    """Written as a vector: environment i ends after i + 2 steps, and is reset at once."""

    def __init__(self, num_envs, mode=AutoresetMode.SAME_STEP):
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": mode}
        self.single_observation_space = gymnasium.spaces.Box(0, 99, (1,), np.float32)
        self.single_action_space = gymnasium.spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        assert seed is None or isinstance(seed, int)
        self.count = np.full(self.num_envs, 10)
        return self._look(), {}

    def step(self, actions):
        self.count += 1
        ended = self.count >= 12 + np.arange(self.num_envs)
        info = {"final_obs": self._look()} if ended.any() else {}
        self.count[ended] = 10
        return self._look(), np.ones(self.num_envs), ended, np.zeros_like(ended), info

    def _look(self):
        return self.count.astype(np.float32)[:, None]


def test_a_vector_that_is_one_keeps_last_observations():
    shown = played_on_host(GymnasiumEnv.of_vectors(Counter), 4)
    rows = [
        (timestep.final_observation[0, 0], timestep.observation[0, 0], timestep.terminated[0])
        for timestep in shown[1:]
    ]
    assert rows == [(11, 11, False), (12, 10, True)] * 2


def test_a_vector_that_spends_a_step_on_each_reset_is_refused():
    make = partial(Counter, mode=AutoresetMode.NEXT_STEP)
    with pytest.raises(RunError, match=r"^Counter: its autoreset mode NEXT_STEP spends a step"):
        play_without_jax(GymnasiumEnv.of_vectors(make), 1)


class Unfit(Counter):
    """Returns what it must not."""

    def __init__(self, num_envs, wrong):
        super().__init__(num_envs)
        self.wrong = wrong
        if wrong in ("large", "float"):
            self.single_observation_space = gymnasium.spaces.Box(0, 9, (1,), np.int64)

    def _look(self):
        return np.full((self.num_envs, 1), {"large": 2**33, "float": 0.5}.get(self.wrong, 0))

    def step(self, actions):
        observation, reward, terminated, truncated, info = super().step(actions)
        if self.wrong == "four":
            return observation, reward, terminated, info
        return observation, [None] * self.num_envs, terminated, truncated, info


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (
            partial(Unfit, wrong="large"),
            "Unfit: observation holds 8589934592, but it is kept as int32",
        ),
        (
            partial(Unfit, wrong="float"),
            r"Unfit: observation is float64\[1\]; its space says int32\[1\]",
        ),
        (
            partial(Unfit, wrong="four"),
            "Unfit: step must return 5 values .*; got 4 values, as in the old Gym's API",
        ),
        (
            partial(Unfit, wrong="reward"),
            r"Unfit: rewards must be one number for each environment; got \[None",
        ),
        (lambda n: Counter(1), "Counter: has 1 environments; 3 were asked for"),
        *(
            (
                partial(sync, lambda: Wrong("nothing"), mode),
                r"SyncVectorEnv: action_masks\(\) allows no action",
            )
            for mode in MODES
        ),
    ],
)
def test_what_a_vector_must_not_do_is_one_line(make, line):
    env = GymnasiumEnv.of_vectors(make)
    with pytest.raises(RunError, match="^" + line):
        play_without_jax(env, 5)


def test_vector_that_cannot_be_cut_says_so():
    with pytest.raises(RunError, match=r"^Counter: an episode took more steps than asked for"):
        play_without_jax(GymnasiumEnv.of_vectors(Counter), 2, cut=1)
