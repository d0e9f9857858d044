"""Vectors of somebody's own behave as their environments do by hand."""

from functools import cache, partial

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from playing import play_without_jax, played_on_host
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.errors import RunError
from python_games import Climb, InInfo, InObservation, InvalidParts, Wrong

# As ``played_on_host`` has them.
SEEDS = np.asarray(jax.random.key_data(jax.random.split(jax.random.key(0), 3)))[:, -1] & 0x7FFFFFFF


class Together(gymnasium.vector.VectorEnv):
    """A vector of somebody's own, which steps copies of a game."""

    def __init__(self, num_envs, make):
        mode = AutoresetMode.SAME_STEP
        self.games = SyncVectorEnv([make] * num_envs, autoreset_mode=mode)
        self.num_envs, self.metadata = num_envs, {"autoreset_mode": mode}
        self.single_observation_space = self.games.single_observation_space
        self.single_action_space = self.games.single_action_space

    def reset(self, *, seed=None, options=None):
        assert seed in (None, 0, SEEDS[0])
        seeds = SEEDS.tolist()[: self.num_envs]
        return self.games.reset(seed=None if seed is None else seeds, options=options)

    def step(self, actions):
        return self.games.step(actions)

    def close(self):
        self.games.close()


class Masked(Together):
    def action_masks(self):
        return np.array(self.games.call("action_masks"))


def limited():
    return gymnasium.wrappers.TimeLimit(Climb(), 6)


def with_cards(how, make, **settings):
    return how(make, infos=["cards"], **settings)


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
def test_a_vector_equals_its_environments(make):
    vectors = partial(Masked, make=make)
    assert_as_alone(with_cards(GymnasiumEnv.of_vectors, vectors), make)


@pytest.mark.parametrize(
    ("make", "mask"),
    [
        (lambda: InInfo(Climb()), None),
        (lambda: InInfo(Climb(), "legal"), "legal"),
        (Climb, lambda vector: np.array(vector.games.call("action_masks"))),
    ],
)
def test_masks_of_a_vector_are_found_or_told(make, mask):
    vectors = partial(Together, make=make)
    assert_as_alone(with_cards(GymnasiumEnv.of_vectors, vectors, mask=mask), Climb)


def test_masks_of_a_vector_may_be_in_its_observation():
    vectors = GymnasiumEnv.of_vectors(partial(Together, make=InObservation))
    ours, theirs = played_on_host(vectors), played_on_host(GymnasiumEnv(InObservation))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_masks_are_found_through_the_wrappers_of_a_vector():
    wrap = partial(gymnasium.wrappers.vector.ClipReward, min_reward=-9, max_reward=9)
    vectors = lambda n: wrap(Masked(n, Climb))  # noqa: E731
    assert_as_alone(with_cards(GymnasiumEnv.of_vectors, vectors), Climb)


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


@pytest.mark.parametrize(
    ("vectors", "line"),
    [
        *(
            (partial(Counter, mode=mode), f"^Counter: its autoreset mode is {mode.name}; make it")
            for mode in (AutoresetMode.NEXT_STEP, AutoresetMode.DISABLED)
        ),
        *(
            (lambda n, kind=kind: kind([Climb] * n), f"^{kind.__name__} steps environments one by")
            for kind in (SyncVectorEnv, AsyncVectorEnv)
        ),
    ],
)
def test_vectors_that_gain_nothing_are_refused(vectors, line):
    with pytest.raises(ValueError, match=line):
        GymnasiumEnv.of_vectors(vectors)


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
            "Unfit: observation holds 8589934592; its space, kept as int32",
        ),
        (
            partial(Unfit, wrong="float"),
            r"Unfit: observation is float64\[1\]; its space says int32\[1\]",
        ),
        (partial(Unfit, wrong="four"), "Unfit: step must return 5 values .*; got 4 values$"),
        (
            partial(Unfit, wrong="reward"),
            r"Unfit: rewards must be one number for each environment; got \[None",
        ),
        (lambda n: Counter(1), "Counter: has 1 environments; 3 were asked for"),
        (
            partial(Masked, make=lambda: Wrong("nothing")),
            r"Masked: action_masks\(\) allows no action",
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
