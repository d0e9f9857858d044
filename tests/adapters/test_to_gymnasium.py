"""Environments as Gymnasium's: the same episodes, its conventions, and errors of one line."""

import warnings
from collections.abc import Callable

import equinox as eqx
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import Box, Dict, Discrete, MultiDiscrete, Tuple
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env, data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from corridor import Corridor
from environments import Scripted
from playing import draw_allowed
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.envs import AbstractEnv, TimeStep, VectorEnv
from ppo_mask.envs.probes import MaskedDoors

SHOWN = ("observation", "reward", "terminated", "truncated")
CONTINUE, TERMINATE, TRUNCATE, BOTH = range(4)
# One row per step: what each of three environments does.
SCRIPT = np.array([[0, 0, 1], [1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 0]])
one_or_many = pytest.mark.parametrize("make", [ToGymnasium, lambda env: ToGymnasiumVector(env, 5)])
with_one_or_several_choices = pytest.mark.parametrize("env", [Corridor(), MaskedDoors()], ids=repr)


class Rich(AbstractEnv[jax.Array]):
    """Observations and infos of many kinds; says when a step is traced."""

    offset: jax.Array
    traced: Callable[..., None] = eqx.field(static=True, default=print)
    num_actions: int = 2

    def reset(self, key):
        return jnp.int32(0), self._show(jnp.int32(0))

    def step(self, key, state, action):
        self.traced("step")
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


@with_one_or_several_choices
def test_episodes_equal_the_environments_own(env):
    reset, step, wrapped = jax.jit(env.reset), jax.jit(env.step), ToGymnasium(env)
    generator, random = seeding.np_random(7)[0], np.random.default_rng(0)
    for seed in (7, None, None, None):
        first, second = generator.integers(2**32, size=2, dtype=np.uint32)
        key, reset_key = jax.random.split(jax.random.fold_in(jax.random.key(first), second))
        state, timestep = reset(reset_key)
        observation, info = wrapped.reset(seed=seed)
        ends = [0.0, False, False]
        while True:
            wanted = jax.device_get(timestep)
            np.testing.assert_array_equal(observation, wanted.observation)
            np.testing.assert_array_equal(wrapped.action_masks(), wanted.action_mask)
            assert ends == [getattr(wanted, name).item() for name in SHOWN[1:]]
            assert info == {name: value.item() for name, value in wanted.info.items()}
            if any(ends[1:]):
                break
            (action,) = draw_allowed(random, wanted.action_mask[None], env.num_actions)
            key, step_key = jax.random.split(key)
            state, timestep = step(step_key, state, jnp.asarray(action))
            observation, *ends, info = wrapped.step(action)


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


@with_one_or_several_choices
def test_gymnasium_checker_passes(env):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        check_env(ToGymnasium(env), skip_render_check=isinstance(env, MaskedDoors))
    # It is right: of a float's limits nothing is known here. And nobody has registered it.
    known = ("infinity", "infinite", "alternative render modes")
    assert [w for w in caught if not any(words in str(w.message) for words in known)] == []


@one_or_many
def test_seed_starts_a_sequence_of_episodes(make):
    def starts(env, **first):
        shown = [env.reset(**first), *(env.reset() for _ in range(5))]
        return [np.array(info["position"]).tolist() for _, info in shown]

    env = make(Corridor(50))
    one = starts(env, seed=1)
    assert starts(env, seed=1) == one == starts(make(Corridor(50)), seed=1)
    assert len({*np.ravel(one)}) > 2 * np.size(one[0])
    assert starts(env, seed=2) != one
    assert starts(env) != starts(env)
    assert starts(make(Corridor(50))) != starts(make(Corridor(50)))


def test_trees_of_observations_have_spaces_and_numpy_arrays():
    env = ToGymnasium(Rich(jnp.float32(0.5)))
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


@pytest.mark.parametrize(
    ("observation", "kind"), [(eqx.nn.Identity(), "Identity"), (jnp.bfloat16(1), "bfloat16")]
)
def test_observations_without_a_space_are_refused(observation, kind):
    class Odd(Rich):
        def _show(self, state):
            return eqx.tree_at(lambda t: t.observation, super()._show(state), observation)

    with pytest.raises(TypeError, match=f"observations hold a {kind}; a space can hold"):
        ToGymnasium(Odd(jnp.float32(0.5)))


@one_or_many
def test_returned_arrays_are_copies(make):
    env = make(Scripted())
    first, _ = env.reset()
    go_on = env.action_space.sample() * CONTINUE
    second = env.step(go_on)[0]
    assert (first.max(), second.min()) == (0.0, 1.0)
    second += 5
    env.action_masks()[:] = False
    assert env.action_masks().any()
    assert (env.step(go_on)[0] == 2.0).all()


def test_environments_of_one_structure_compile_once():
    traces, offsets = [], []
    for offset in (1.0, 2.0, 3.0):
        env = ToGymnasium(Rich(jnp.float32(offset), traces.append))
        env.reset()
        offsets += [env.step(0)[0]["grid"][1].item() for _ in range(3)]
    assert traces == ["step"]
    assert offsets == [1.0] * 3 + [2.0] * 3 + [3.0] * 3


def test_misuse_of_one_is_refused_in_one_line():
    env = ToGymnasium(Scripted())
    for call in (lambda: env.step(0), env.action_masks, lambda: env.state):
        with pytest.raises(ResetNeeded, match="call reset before"):
            call()
    env.reset()
    for action in (-1, 4):
        with pytest.raises(ValueError, match=f"actions are 0 to 3, got {action}"):
            env.step(action)
    with pytest.raises(ValueError, match=r"actions must be whole numbers of shape \[\], got float"):
        env.step(1.5)
    env.step(TERMINATE)
    with pytest.raises(ResetNeeded, match="the episode has ended; call reset before step"):
        env.step(CONTINUE)
    env.reset()
    assert env.step(CONTINUE)[1] == 1.0


def test_misuse_of_a_vector_is_refused_in_one_line():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        ToGymnasiumVector(Scripted(), 0)
    with pytest.raises(NotImplementedError, match="render function is not implemented"):
        ToGymnasiumVector(Scripted(), 2).render()
    envs = ToGymnasiumVector(Scripted(), 2)
    for call in (lambda: envs.step([0, 0]), envs.action_masks):
        with pytest.raises(ResetNeeded, match="call reset before"):
            call()
    with pytest.raises(ValueError, match=r"one whole number for all environments, got \[1, 2\]"):
        envs.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="a reset_mask is for vectors without autoreset"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    for actions, line in (
        ([0, 0, 0], r"actions must be whole numbers of shape \[2\], got int64\[3\]"),
        ([0.0, 1.0], r"actions must be whole numbers of shape \[2\], got float64\[2\]"),
        ([-1, 4], "actions are 0 to 3, got -1"),
    ):
        with pytest.raises(ValueError, match=line):
            envs.step(actions)


def test_several_choices_are_a_multi_discrete():
    env, envs = ToGymnasium(MaskedDoors()), ToGymnasiumVector(MaskedDoors(), 2)
    assert env.action_space == envs.single_action_space == MultiDiscrete([4, 6, 6])
    env.reset()
    envs.reset()
    shape = r"actions must be whole numbers of shape \[3\], got"
    for step, action, line in (
        *((env.step, action, shape) for action in (1, [1, 2], [1.0, 2.0, 3.0])),
        (env.step, [4, 0, 0], r"actions are 0 to \[3, 5, 5\], got \[4, 0, 0\]"),
        (envs.step, [1, 2, 3], r"of shape \[2, 3\], got int64\[3\]"),
        (envs.step, [[0] * 3, [0, -1, 0]], r"are 0 to \[3, 5, 5\], got \[0, -1, 0\]"),
    ):
        with pytest.raises(ValueError, match=line):
            step(np.array(action))


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

    envs = ToGymnasiumVector(Scripted(), 3)
    listed = gymnasium.wrappers.vector.DictInfoToList(envs)
    listed.reset()
    first, second, _ = [listed.step(actions)[-1] for actions in SCRIPT[:2]][-1]
    assert (second, first["final_info"]) == ({"steps": 2}, {"steps": 2})
    assert first["final_obs"].tolist() == [2.0]
    recorded = gymnasium.wrappers.vector.RecordEpisodeStatistics(envs)
    recorded.reset()
    episode = [recorded.step(actions)[-1] for actions in SCRIPT[:2]][-1]["episode"]
    assert (episode["r"][0], episode["l"][0]) == (3.0, 2)


@with_one_or_several_choices
def test_steps_of_a_vector_equal_vector_env(env):
    vector, envs = VectorEnv(env, 4), ToGymnasiumVector(env, 4)
    words = seeding.np_random(3)[0].integers(2**32, size=2, dtype=np.uint32)
    key, reset_key = jax.random.split(jax.random.fold_in(jax.random.key(words[0]), words[1]))
    step, random, ends = jax.jit(vector.step), np.random.default_rng(0), 0
    state, timestep = jax.jit(vector.reset)(reset_key)
    timestep = jax.device_get(timestep)
    observation, info = envs.reset(seed=3)
    np.testing.assert_array_equal(observation, timestep.observation)
    for name, values in timestep.info.items():
        np.testing.assert_array_equal(info[name], values)
        assert info[f"_{name}"].all()
    for _ in range(40):
        np.testing.assert_array_equal(envs.action_masks(), timestep.action_mask)
        actions = draw_allowed(random, timestep.action_mask, env.num_actions)
        assert envs.action_space.contains(actions)
        key, step_key = jax.random.split(key)
        state, timestep = step(step_key, state, jnp.asarray(actions))
        timestep = jax.device_get(timestep)
        *shown, info = envs.step(actions)
        for name, value in zip(SHOWN, shown, strict=True):
            np.testing.assert_array_equal(value, getattr(timestep, name))
        ended = timestep.terminated | timestep.truncated
        ends += ended.sum()
        assert ("final_obs" in info) == bool(ended.any())
        for i, has_ended in enumerate(ended):
            if has_ended:
                np.testing.assert_array_equal(info["final_obs"][i], timestep.final_observation[i])
            of_step = info["final_info"] if has_ended else info
            for name, values in timestep.info.items():
                assert of_step[name][i] == values[i]
    assert ends > 5


def test_a_vector_equals_gymnasium_sync_vector():
    own = SyncVectorEnv(
        [lambda: ToGymnasium(Scripted()) for _ in range(3)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    envs = ToGymnasiumVector(Scripted(), 3)
    assert envs.metadata["autoreset_mode"] == own.metadata["autoreset_mode"]
    for space in ("observation_space", "action_space"):
        for name in (space, f"single_{space}"):
            assert getattr(envs, name) == getattr(own, name)

    def compare(mine, theirs):
        # They have Python's integers, of 64 bits.
        theirs = jax.tree.map(lambda x: np.int32(x) if x.dtype == np.int64 else x, theirs)
        assert data_equivalence(mine, theirs, exact=True), (mine, theirs)

    compare(envs.reset(seed=1), own.reset(seed=1))
    for actions in SCRIPT:
        *mine, info = envs.step(actions)
        *theirs, own_info = own.step(actions)
        compare(mine, theirs)
        # A new episode's info is not known before its first step, and marked so.
        np.testing.assert_array_equal(info.pop("_steps"), ~(mine[2] | mine[3]))
        assert own_info.pop("_steps").all()
        compare(info, own_info)
