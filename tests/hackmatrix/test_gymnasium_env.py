"""HackMatrix by its name in Gymnasium: its options and its pictures; play is the adapter's."""

import subprocess
import sys
import warnings

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hackmatrix.gymnasium
from games import position
from hackmatrix import positions
from hackmatrix.observation import bounds
from hackmatrix.render import text
from recorded import see, starts
from source import load

ID = hackmatrix.gymnasium.ID


@pytest.mark.parametrize("first", ["hackmatrix", "gymnasium"])
def test_importing_the_package_registers_the_game(first):
    program = f"""
import sys, {first}
print("gymnasium" in sys.modules)
import gymnasium, hackmatrix
gymnasium.register_envs(hackmatrix)
print(gymnasium.spec("HackMatrix-v0").entry_point)
import hackmatrix.gymnasium  # A second registration would be a warning.
"""
    command = [sys.executable, "-W", "error::UserWarning", "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.split() == [str(first == "gymnasium"), "hackmatrix.gymnasium:make_env"]
    assert done.stderr == ""


def test_the_package_needs_no_gymnasium():
    program = "import sys; sys.modules['gymnasium'] = None; import hackmatrix"
    assert subprocess.run([sys.executable, "-c", program]).returncode == 0


def test_gymnasium_checker_passes_without_warning(capsys):
    env = gymnasium.make(ID, render_mode="rgb_array")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped)
    assert env.spec.id == "HackMatrix-v0"
    shown = capsys.readouterr().out
    # It tried the mode human too.
    assert "stage 1/8" in shown
    assert shown.endswith("\n\n")


@pytest.mark.slow
def test_vector_plays_and_renders_each_game():
    envs = gymnasium.make_vec(
        ID, num_envs=16, vectorization_mode="vector_entry_point", render_mode="ansi"
    )
    observation, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(observation)
    assert len(set(envs.render())) == 16
    _, _, terminated, _, info = envs.step(envs.action_masks().argmax(axis=1))
    assert not (terminated | info["invalid_action"]).any()


@pytest.mark.optimized
def test_maskable_ppo_trains_without_one_invalid_action(capsys):
    """By sb3-contrib, as the example trains it."""
    pytest.importorskip("sb3_contrib", reason="needs sb3-contrib and torch, which are large")
    infos = []

    def watch(variables, _):
        infos.extend(variables["infos"])
        return True

    load("examples/maskable_ppo.py").main(["--steps", "20000"], watch)
    assert len(infos) >= 20_000
    assert not any(info["invalid_action"] for info in infos)
    assert sum("episode" in info for info in infos) > 100
    shown = capsys.readouterr().out
    assert "ep_rew_mean" in shown
    assert "one game: return" in shown


def test_options_reach_the_game():
    stage_4 = [0, 0, 0, 1, 0, 0, 0, 0]
    env = gymnasium.make(ID, undo_depth=12, max_steps=9, starting_weights=stage_4).unwrapped.env
    assert (env.undo_depth, env.max_steps) == (12, 9)
    np.testing.assert_array_equal(env.starting_weights, stage_4)
    with pytest.raises(ValueError, match="undo_depth must be at least 8, got 3"):
        gymnasium.make(ID, undo_depth=3)
    for weights in ([0] * 8, [-1, 2, 0, 0, 0, 0, 0, 0], [np.inf] * 8):
        with pytest.raises(ValueError, match="must be finite, 0 or more, and not all 0, got"):
            gymnasium.make(ID, starting_weights=weights)
    with pytest.raises(ValueError, match="render_mode must be one of ansi, rgb_array, human"):
        hackmatrix.gymnasium.make_env(render_mode="film")
    envs = hackmatrix.gymnasium.make_vector_env(2, max_steps=9, max_episode_steps=7)
    assert envs.env.max_steps == 7


def test_extreme_positions_are_in_the_observation_space():
    low, high = bounds()
    most = (1 << 15) - 1  # of what a position can be written with
    extreme = position(siphons=most, attack=most, credits=most, energy=most)
    observations = see(positions.load_all([extreme, *starts()[1:]])).flat
    assert (observations >= low).all()
    assert (observations <= high).all()
    assert (np.max(observations, axis=0) > 1).sum() == 2


def test_render_modes_make_their_frames():
    env = gymnasium.make(ID, render_mode="ansi")
    env.reset(seed=3)
    assert env.render() == text(env.unwrapped.state)

    env = gymnasium.make(ID, render_mode="rgb_array")
    env.reset(seed=3)
    first = env.render()
    env.step(int(env.unwrapped.action_masks().argmax()))
    second = env.render()
    assert first.dtype == np.uint8
    assert first.shape == second.shape
    assert first.shape[1:] == (480, 3)
    assert (first != second).any()
    assert len(np.unique(first.reshape(-1, 3), axis=0)) > 20
