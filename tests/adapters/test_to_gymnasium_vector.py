"""A vector as Gymnasium's: what VectorEnv does, returned as Gymnasium's own vectors do."""

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.error import ResetNeeded
from gymnasium.spaces import MultiDiscrete
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from corridor import Corridor
from environments import Scripted
from playing import draw_allowed
from ppo_mask.adapters.to_gymnasium import ToGymnasium
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector
from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import MaskedDoors

CONTINUE, TERMINATE, TRUNCATE, BOTH = range(4)
# One row per step: what each of three environments does.
SCRIPT = [[0, 0, 1], [1, 0, 0], [0, 2, 0], [0, 0, 3], [0, 0, 0]]


def test_steps_equal_vector_env():
    inner = Corridor()
    vector, envs = VectorEnv(inner, 4), ToGymnasiumVector(inner, 4)
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
        actions = draw_allowed(random, timestep.action_mask, inner.num_actions)
        assert envs.action_space.contains(actions)
        key, step_key = jax.random.split(key)
        state, timestep = step(step_key, state, jnp.asarray(actions))
        timestep = jax.device_get(timestep)
        observation, reward, terminated, truncated, info = envs.step(actions)
        np.testing.assert_array_equal(observation, timestep.observation)
        np.testing.assert_array_equal(reward, timestep.reward)
        np.testing.assert_array_equal(terminated, timestep.terminated)
        np.testing.assert_array_equal(truncated, timestep.truncated)
        ended = terminated | truncated
        ends += ended.sum()
        assert ("final_obs" in info) == bool(ended.any())
        for i, has_ended in enumerate(ended):
            if has_ended:
                np.testing.assert_array_equal(info["final_obs"][i], timestep.final_observation[i])
            of_step = info["final_info"] if has_ended else info
            for name, values in timestep.info.items():
                assert of_step[name][i] == values[i]
    assert ends > 5


def test_vector_equals_gymnasium_sync_vector():
    own = SyncVectorEnv(
        [lambda: ToGymnasium(Scripted()) for _ in range(3)], autoreset_mode=AutoresetMode.SAME_STEP
    )
    envs = ToGymnasiumVector(Scripted(), 3)
    assert envs.metadata["autoreset_mode"] == own.metadata["autoreset_mode"]
    assert envs.observation_space == own.observation_space
    assert envs.action_space == own.action_space
    assert envs.single_observation_space == own.single_observation_space
    assert envs.single_action_space == own.single_action_space
    compare(envs.reset(seed=1), own.reset(seed=1))
    for actions in SCRIPT:
        *mine, info = envs.step(np.array(actions))
        *theirs, own_info = own.step(np.array(actions))
        compare(mine, theirs)
        # A new episode's info is not known before its first step, and marked so.
        ended = mine[2] | mine[3]
        np.testing.assert_array_equal(info.pop("_steps"), ~ended)
        assert own_info.pop("_steps").all()
        compare(info, own_info)


def compare(mine, theirs):
    assert type(mine) is type(theirs)
    if isinstance(mine, dict):
        assert mine.keys() == theirs.keys()
        for name in mine:
            compare(mine[name], theirs[name])
    elif isinstance(mine, tuple | list):
        for one, other in zip(mine, theirs, strict=True):
            compare(one, other)
    elif mine.dtype == object:
        assert [None if x is None else x.tolist() for x in mine] == [
            None if x is None else x.tolist() for x in theirs
        ]
    else:
        # They have Python's integers, of 64 bits.
        assert mine.dtype == theirs.dtype or mine.dtype.kind == theirs.dtype.kind == "i"
        np.testing.assert_array_equal(mine, theirs)


def test_masks_after_an_end_are_the_new_episodes():
    envs = ToGymnasiumVector(Scripted(), 3)
    envs.reset()
    only_go_on = [[True, False, False, False]] * 3
    for actions in SCRIPT:
        assert envs.action_masks().tolist() == only_go_on
        envs.step(np.array(actions))
    assert envs.action_masks().tolist() == only_go_on


def starts(envs, number=4, **first):
    return [envs.reset(**(first if i == 0 else {}))[1]["position"].tolist() for i in range(number)]


def test_seed_starts_a_sequence_of_episodes():
    envs = ToGymnasiumVector(Corridor(50), 5)
    one = starts(envs, seed=1)
    assert starts(envs, seed=1) == one == starts(ToGymnasiumVector(Corridor(50), 5), seed=1)
    assert len(set(one[0])) > 2
    assert starts(envs, seed=2) != one
    assert starts(envs) != starts(envs)


def last_info_of_two_steps(envs):
    envs.reset()
    return [envs.step(np.array(actions))[-1] for actions in SCRIPT[:2]][-1]


def test_gymnasium_wrappers_work():
    wrappers, envs = gymnasium.wrappers.vector, ToGymnasiumVector(Scripted(), 3)
    first, second, _ = last_info_of_two_steps(wrappers.DictInfoToList(envs))
    assert second == {"steps": 2}
    assert first["final_info"] == {"steps": 2}
    assert first["final_obs"].tolist() == [2.0]
    episode = last_info_of_two_steps(wrappers.RecordEpisodeStatistics(envs))["episode"]
    assert (episode["r"][0], episode["l"][0]) == (3.0, 2)


def test_returned_arrays_are_copies():
    envs = ToGymnasiumVector(Scripted(), 2)
    first, _ = envs.reset()
    second = envs.step(np.zeros(2, int))[0]
    assert (first.tolist(), second.tolist()) == ([[0.0], [0.0]], [[1.0], [1.0]])
    second += 5
    envs.action_masks()[:] = False
    assert envs.action_masks().any()
    assert envs.step([0, 0])[0].tolist() == [[2.0], [2.0]]


def test_misuse_is_refused_in_one_line():
    with pytest.raises(ValueError, match="num_envs must be at least 1, got 0"):
        ToGymnasiumVector(Scripted(), 0)
    envs = ToGymnasiumVector(Scripted(), 2)
    for call in (lambda: envs.step([0, 0]), envs.action_masks):
        with pytest.raises(ResetNeeded, match="call reset before"):
            call()
    with pytest.raises(ValueError, match=r"one whole number for all environments, got \[1, 2\]"):
        envs.reset(seed=[1, 2])
    with pytest.raises(ValueError, match="a reset_mask is for vectors without autoreset"):
        envs.reset(options={"reset_mask": np.array([True, False])})
    envs.reset()
    with pytest.raises(ValueError, match=r"actions must be 2 whole numbers, got int64\[3\]"):
        envs.step([0, 0, 0])
    with pytest.raises(ValueError, match=r"actions must be 2 whole numbers, got float64\[2\]"):
        envs.step([0.0, 1.0])
    with pytest.raises(ValueError, match="actions are 0 to 3, got -1 to 4"):
        envs.step([-1, 4])


def test_several_choices_are_a_multi_discrete():
    envs, random = ToGymnasiumVector(MaskedDoors(), 2), np.random.default_rng(0)
    assert envs.single_action_space == MultiDiscrete([4, 6, 6])
    assert envs.action_space.shape == (2, 3)
    observation, _ = envs.reset(seed=0)
    for number in range(5):
        assert envs.action_masks().shape == (2, 16)
        actions = draw_allowed(random, envs.action_masks(), (4, 6, 6))
        opens = ((actions >= [2, 3, 3]) == (observation > 0)).all(axis=1)
        observation, reward, terminated, _, _ = envs.step(actions)
        assert terminated.all() == (number == 3)
        np.testing.assert_array_equal(reward, opens)
    with pytest.raises(ValueError, match=r"of shape \[2, 3\], got int64\[3\]"):
        envs.step(np.array([1, 2, 3]))
    with pytest.raises(ValueError, match=r"actions are 0 to \[3, 5, 5\], got \[0, -1, 0\]"):
        envs.step(np.array([[0, 0, 0], [0, -1, 0]]))


def test_each_environment_has_a_frame():
    renderers = {"ansi": lambda state: f"after {state}", "human": print}
    envs = ToGymnasiumVector(Scripted(), 2, renderers=renderers, render_mode="ansi")
    assert envs.metadata["render_modes"] == ["ansi"]
    envs.reset()
    envs.step([CONTINUE, TERMINATE])
    assert envs.render() == ("after 1", "after 0")
    with pytest.raises(ValueError, match="render_mode must be one of ansi; got 'human'"):
        ToGymnasiumVector(Scripted(), 2, renderers=renderers, render_mode="human")
    envs = ToGymnasiumVector(Scripted(), 2, renderers=renderers)
    with pytest.warns(UserWarning, match="render does nothing without a render_mode"):
        assert envs.render() is None
