"""One environment as Gymnasium's: the same episodes, its conventions, and errors of one line."""

import warnings
from typing import Any

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env

from corridor import Corridor
from environments import Scripted
from playing import draw_allowed
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.envs.probes import MaskedDoors

CONTINUE, TERMINATE, TRUNCATE, BOTH = range(4)


class Rich(AbstractEnv[jax.Array]):
    """Observations and infos of many kinds; counts how often it is traced."""

    offset: jax.Array
    traces: Any = eqx.field(static=True)
    num_actions: int = 2

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0))

    def step(self, key, state, action):
        self.traces.append("step")
        return state + 1, self._show(state + 1)

    def _show(self, state):
        return TimeStep(
            observation={"flag": state > 0, "grid": (jnp.full((2, 3), state), self.offset[None])},
            action_mask=jnp.array([True, False]),
            reward=jnp.float32(0),
            terminated=jnp.bool_(False),
            truncated=jnp.bool_(False),
            info={"steps": state, "row": jnp.arange(3.0) + state},
        )


class Traces:
    """Names of what is traced; equal only to itself."""

    def __init__(self):
        self.names = []

    def append(self, name):
        self.names.append(name)


@pytest.mark.parametrize("env", [Corridor(), MaskedDoors()], ids=["one", "several choices"])
def test_episodes_equal_the_environments_own(env):
    reset, step, wrapped = jax.jit(env.reset), jax.jit(env.step), ToGymnasium(env)
    generator, random = seeding.np_random(7)[0], np.random.default_rng(0)
    for seed in (7, None, None, None):
        first, second = generator.integers(2**32, size=2, dtype=np.uint32)
        key, reset_key = jax.random.split(jax.random.fold_in(jax.random.key(first), second))
        state, timestep = reset(reset_key)
        observation, info = wrapped.reset(seed=seed)
        ends = 0.0, False, False
        while True:
            wanted = jax.device_get(timestep)
            np.testing.assert_array_equal(observation, wanted.observation)
            np.testing.assert_array_equal(wrapped.action_masks(), wanted.action_mask)
            assert ends == (float(wanted.reward), bool(wanted.terminated), bool(wanted.truncated))
            assert info == {name: value.item() for name, value in wanted.info.items()}
            if any(ends[1:]):
                break
            (action,) = draw_allowed(random, wanted.action_mask[None], env.num_actions)
            key, step_key = jax.random.split(key)
            state, timestep = step(step_key, state, jnp.asarray(action))
            observation, *ends, info = wrapped.step(action)
            ends = tuple(ends)


@pytest.mark.parametrize("action", range(4))
def test_termination_and_truncation_differ(action):
    terminated, truncated = action in (TERMINATE, BOTH), action in (TRUNCATE, BOTH)
    env = ToGymnasium(Scripted())
    env.reset()
    np.testing.assert_array_equal(env.action_masks(), [True, False, False, False])
    assert env.step(action)[1:4] == (1.0, terminated, truncated)
    assert env.action_masks().all() == (terminated or truncated)
    env.reset()
    np.testing.assert_array_equal(env.action_masks(), [True, False, False, False])


def test_several_choices_are_a_multi_discrete():
    env = ToGymnasium(MaskedDoors())
    assert env.action_space == MultiDiscrete([4, 6, 6])
    env.reset()
    for action in (1, [1, 2], [1.0, 2.0, 3.0]):
        with pytest.raises(ValueError, match=r"actions must be whole numbers of shape \[3\], got"):
            env.step(action)
    with pytest.raises(ValueError, match=r"actions are 0 to \[3, 5, 5\], got \[4, 0, 0\]"):
        env.step(np.array([4, 0, 0]))


@pytest.mark.parametrize("kind", [Corridor, MaskedDoors])
def test_gymnasium_checker_passes(kind):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(ToGymnasium(kind()), skip_render_check=kind is MaskedDoors)
    # It is right: of a float's limits nothing is known here. And nobody has registered it.
    known = ("infinity", "infinite", "alternative render modes")
    assert [w for w in caught if not any(words in str(w.message) for words in known)] == []


def starts(env, number=6, **first):
    return [int(env.reset(**(first if i == 0 else {}))[1]["position"]) for i in range(number)]


def test_seed_starts_a_sequence_of_episodes():
    env = ToGymnasium(Corridor(50))
    one = starts(env, seed=1)
    assert starts(env, seed=1) == one == starts(ToGymnasium(Corridor(50)), seed=1)
    assert len(set(one)) > 2
    assert starts(env, seed=2) != one
    assert starts(env) != starts(env)
    assert starts(ToGymnasium(Corridor(50))) != starts(ToGymnasium(Corridor(50)))


def test_trees_of_observations_have_spaces_and_numpy_arrays():
    env = ToGymnasium(Rich(jnp.float32(0.5), Traces()))
    limits = np.iinfo(np.int32)
    assert env.observation_space == Dict(
        flag=Box(0, 1, (), np.bool_),
        grid=Tuple(
            [Box(limits.min, limits.max, (2, 3), np.int32), Box(-np.inf, np.inf, (1,), np.float32)]
        ),
    )
    assert env.action_space == Discrete(2)
    env.reset()
    observation, reward, terminated, truncated, info = env.step(np.int64(0))
    assert observation["flag"] is True
    grid, offset = observation["grid"]
    np.testing.assert_array_equal(grid, np.ones((2, 3)))
    assert grid.dtype == np.int32
    assert offset.tolist() == [0.5]
    assert [type(x) for x in (reward, terminated, truncated)] == [float, bool, bool]
    assert type(info["steps"]) is int
    np.testing.assert_array_equal(info["row"], [1.0, 2.0, 3.0])


def test_observations_without_a_space_are_refused():
    class Odd(Rich):
        def _show(self, state):
            return eqx.tree_at(lambda t: t.observation, super()._show(state), eqx.nn.Identity())

    with pytest.raises(TypeError, match="observations hold a Identity; spaces are of arrays"):
        ToGymnasium(Odd(jnp.float32(0.5), Traces()))


def test_returned_arrays_are_copies():
    env = ToGymnasium(Scripted())
    first, _ = env.reset()
    mask = env.action_masks()
    second = env.step(CONTINUE)[0]
    assert (first.item(), second.item()) == (0.0, 1.0)
    second += 5
    mask[:] = False
    assert env.action_masks().any()
    assert env.step(CONTINUE)[0].item() == 2.0


def test_environments_of_one_structure_compile_once():
    traces = Traces()
    offsets = []
    for offset in (1.0, 2.0, 3.0):
        env = ToGymnasium(Rich(jnp.float32(offset), traces))
        env.reset()
        for _ in range(3):
            offsets.append(env.step(0)[0]["grid"][1].item())
    assert traces.names == ["step"]
    assert offsets == [1.0] * 3 + [2.0] * 3 + [3.0] * 3


def test_misuse_is_refused_in_one_line():
    env = ToGymnasium(Scripted())
    for call in (lambda: env.step(0), env.action_masks, lambda: env.state):
        with pytest.raises(ResetNeeded, match="call reset before"):
            call()
    env.reset()
    for action in (-1, 4):
        with pytest.raises(ValueError, match=f"actions are 0 to 3, got {action}"):
            env.step(action)
    with pytest.raises(TypeError, match="integer"):
        env.step(1.5)
    env.step(TERMINATE)
    with pytest.raises(ResetNeeded, match="the episode has ended; call reset before step"):
        env.step(CONTINUE)
    env.reset()
    assert env.step(CONTINUE)[1] == 1.0


def test_render_modes_are_the_given_ones():
    shown = []
    renderers = {"ansi": lambda state: f"after {state}", "human": lambda state: shown.append(state)}
    with pytest.raises(ValueError, match="render_mode must be one of ansi, human; got 'rgb_array'"):
        ToGymnasium(Scripted(), renderers=renderers, render_mode="rgb_array")
    env = ToGymnasium(Scripted(), renderers=renderers, render_mode="ansi")
    assert env.metadata == {"render_modes": ["ansi", "human"], "render_fps": 4}
    with pytest.raises(ResetNeeded, match="call reset before render"):
        env.render()
    env.reset()
    env.step(CONTINUE)
    assert env.render() == "after 1"
    assert shown == []

    env = ToGymnasium(Scripted(), renderers=renderers, render_mode="human")
    env.reset()
    env.step(CONTINUE)
    assert env.render() is None
    assert [int(state) for state in shown] == [0, 1]

    env = ToGymnasium(Scripted(), renderers=renderers)
    env.reset()
    with pytest.warns(UserWarning, match="render does nothing without a render_mode"):
        assert env.render() is None


def test_gymnasium_wrappers_work():
    env = gymnasium.wrappers.TimeLimit(ToGymnasium(Scripted()), max_episode_steps=2)
    env.reset()
    assert env.step(CONTINUE)[2:4] == (False, False)
    assert env.step(CONTINUE)[2:4] == (False, True)
    assert env.get_wrapper_attr("action_masks")().tolist() == [True, False, False, False]
