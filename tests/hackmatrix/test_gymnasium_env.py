"""HackMatrix by its name in Gymnasium: the same game, its options, and its pictures."""

import warnings

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.spaces import Discrete
from gymnasium.utils import seeding
from gymnasium.utils.env_checker import check_env
from gymnasium.vector import AutoresetMode

import hackmatrix.gymnasium
import recordings
from games import position
from hackmatrix import HackMatrix, positions
from hackmatrix.observation import bounds
from hackmatrix.render import text
from hackmatrix.rules.programs import Program

ID = hackmatrix.gymnasium.ID
UNDO = 5 + Program.UNDO


def test_gymnasium_checker_passes_without_warning(capsys):
    env = gymnasium.make(ID, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert env.spec.id == "HackMatrix-v0"
    # It tried the mode human too.
    assert "stage 1/8" in capsys.readouterr().out


@pytest.mark.slow
def test_random_play_equals_the_game():
    game = HackMatrix()
    reset, step = jax.jit(game.reset), jax.jit(game.step)
    generator, _ = seeding.np_random(5)
    random = np.random.default_rng(0)
    env = gymnasium.make(ID)
    observation, info = env.reset(seed=5)
    episodes, rewards, terminated = 0, (0.0, 0.0), True
    for _ in range(300):
        if terminated:
            first, second = generator.integers(2**32, size=2, dtype=np.uint32)
            key, reset_key = jax.random.split(jax.random.fold_in(jax.random.key(first), second))
            state, timestep = reset(reset_key)
            if episodes:
                observation, info = env.reset()
            episodes, rewards = episodes + 1, (0.0, 0.0)
        assert rewards[0] == rewards[1]
        mask = env.unwrapped.action_masks()
        np.testing.assert_array_equal(mask, timestep.action_mask)
        np.testing.assert_array_equal(observation, timestep.observation)
        assert env.observation_space.contains(observation)
        assert info == {name: value.item() for name, value in timestep.info.items()}
        assert all(type(value) in (bool, int, float) for value in info.values())
        action = random.choice(np.flatnonzero(mask))
        key, step_key = jax.random.split(key)
        state, timestep = step(step_key, state, jnp.int32(action))
        observation, reward, terminated, truncated, info = env.step(action)
        rewards = reward, float(timestep.reward)
        assert (terminated, truncated) == (bool(timestep.terminated), False)
    assert episodes > 3


@pytest.mark.slow
def test_vector_plays_by_its_masks_and_resets():
    envs = gymnasium.make_vec(
        ID, num_envs=16, vectorization_mode="vector_entry_point", max_episode_steps=12
    )
    assert envs.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert envs.single_observation_space.shape == (1545,)
    assert envs.single_action_space == Discrete(28)
    random = np.random.default_rng(0)
    observation, info = envs.reset(seed=1)
    ends = 0
    for number in range(1, 25):
        weights = random.random((16, 28)) * envs.action_masks()
        observation, _, terminated, truncated, info = envs.step(weights.argmax(axis=1))
        assert envs.observation_space.contains(observation)
        assert not info["invalid_action"].any()
        ends += (terminated | truncated).sum()
        if number == 12:
            assert truncated.sum() > 0
            assert info["final_obs"][truncated.argmax()].shape == (1545,)
            assert (info["final_info"]["stage"][truncated] >= 1).all()
    assert ends >= 32


def test_forbidden_action_ends_the_game():
    env = gymnasium.make(ID)
    env.reset(seed=0)
    assert not env.unwrapped.action_masks()[UNDO]
    _, reward, terminated, truncated, info = env.step(UNDO)
    assert (reward, terminated, truncated) == (0.0, True, False)
    assert info["invalid_action"] is True


def test_options_reach_the_game():
    env = gymnasium.make(ID, undo_depth=12, max_steps=9).unwrapped.env
    assert (env.undo_depth, env.max_steps) == (12, 9)
    env = gymnasium.make(ID, starting_weights=[0, 0, 0, 1, 0, 0, 0, 0])
    assert [env.reset(seed=seed)[1]["stage"] for seed in range(3)] == [4, 4, 4]
    with pytest.raises(ValueError, match="undo_depth must be at least 8, got 3"):
        gymnasium.make(ID, undo_depth=3)
    envs = hackmatrix.gymnasium.make_vector_env(2, max_steps=9, max_episode_steps=7)
    assert envs.env.max_steps == 7


def test_extreme_positions_are_in_the_observation_space():
    low, high = bounds()
    most = (1 << 15) - 1  # of what a position can be written with
    states = [positions.load(position(siphons=most, attack=most, credits=most, energy=most))]
    states += [positions.load(c["state"]) for c in recordings.read("cases.jsonl.gz")[::80]]
    observe = jax.jit(HackMatrix().observe)
    observations = np.stack([observe(state) for state in states])
    assert (observations >= low).all()
    assert (observations <= high).all()
    assert (observations.max(axis=0) > 1).sum() == 2


def test_render_modes_make_their_frames(capsys):
    env = gymnasium.make(ID, render_mode="ansi")
    env.reset(seed=3)
    shown = env.render()
    assert shown == text(env.unwrapped.state)
    env.close()

    env = gymnasium.make(ID, render_mode="rgb_array_list")
    env.reset(seed=3)
    env.step(int(env.unwrapped.action_masks().argmax()))
    frames = env.render()
    assert isinstance(frames, list)
    first, second = frames
    assert first.dtype == np.uint8
    assert first.shape == second.shape
    assert first.shape[1:] == (480, 3)
    assert (first != second).any()
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 20

    capsys.readouterr()
    env = gymnasium.make(ID, render_mode="human")
    env.reset(seed=3)
    assert capsys.readouterr().out == shown + "\n\n"
    with pytest.raises(ValueError, match="render_mode must be one of ansi, rgb_array, human"):
        hackmatrix.gymnasium.make_env(render_mode="film")


def test_vector_renders_each_game():
    envs = gymnasium.make_vec(ID, num_envs=2, render_mode="ansi")
    envs.reset(seed=3)
    frames = envs.render()
    assert len(frames) == 2
    assert all("stage 1/8" in frame for frame in frames)
    assert frames[0] != frames[1]
