"""HackMatrix by its name in Gymnasium: its options and its pictures; play is the adapter's."""

import subprocess
import sys
import warnings

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import hackmatrix.gymnasium
from games import position
from hackmatrix import positions
from hackmatrix.observation import bounds
from hackmatrix.play.agents import load_agent
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
def test_vector_plays_each_game():
    envs = gymnasium.make_vec(ID, num_envs=16, vectorization_mode="vector_entry_point")
    observation, _ = envs.reset(seed=1)
    assert envs.observation_space.contains(observation)
    assert len({row.tobytes() for row in observation}) == 16
    _, _, terminated, _, info = envs.step(envs.action_masks().argmax(axis=1))
    assert not (terminated | info["invalid_action"]).any()


@pytest.mark.optimized
def test_maskable_ppo_trains_resumes_and_plays_here(tmp_path, capsys):
    """By sb3-contrib, as the example trains it."""
    sb3 = pytest.importorskip("sb3_contrib", reason="needs sb3-contrib and torch, which are large")
    infos = []

    def watch(variables, _):
        infos.extend(variables["infos"])
        return True

    example = load("examples/maskable_ppo.py")
    own = ["--no-wandb", f"--folder={tmp_path}"]
    example.main([*own, "--timesteps=4000", "--save-freq=3000"], watch)
    folder = example.main([*own, "--timesteps=6000", "--resume=latest"], watch)
    assert not any(info["invalid_action"] for info in infos)
    assert sum("episode" in info for info in infos) > 50
    assert "ep_rew_mean" in capsys.readouterr().out
    steps = {int(file.stem.split("_")[2]) for file in tmp_path.glob("*.zip")}
    assert steps == {3000, 4096, 6144}
    assert len(infos) == 6144
    # It plays as it did there.
    theirs = sb3.MaskablePPO.load(tmp_path / "maskable_ppo_6144_steps.zip", device="cpu")
    ours = load_agent(str(folder)).model
    env = gymnasium.make(ID)
    observation, _ = env.reset(seed=0)
    for _ in range(20):
        mask = env.unwrapped.action_masks()
        action, _ = theirs.predict(observation, action_masks=mask, deterministic=True)
        assert action == ours(jnp.asarray(observation), jnp.asarray(mask))[0].mode()
        observation, _, terminated, _, _ = env.step(action)
        if terminated:
            observation, _ = env.reset()


def test_a_policy_of_maskable_ppo_is_a_model_of_ours():
    example = load("examples/maskable_ppo.py")
    random = np.random.default_rng(0)
    observation = random.random(1545, np.float32)

    def outputs(layers, sizes):
        x = observation
        for n, (name, size) in enumerate(zip(layers, sizes, strict=True)):
            weight = random.normal(0, 0.1, (size, x.size)).astype(np.float32)
            bias = random.normal(0, 0.1, size).astype(np.float32)
            parameters[f"{name}.weight"], parameters[f"{name}.bias"] = weight, bias
            x = weight @ x + bias
            x = np.tanh(x) if n < 2 else x
        return x

    parameters = {}
    logits, value = outputs(example.ACTOR, (64, 64, 28)), outputs(example.CRITIC, (64, 64, 1))
    mask = np.arange(28) % 3 > 0
    model = example.as_model(parameters)
    distribution, found = model(jnp.asarray(observation), jnp.asarray(mask))
    expected = np.exp(logits) * mask
    np.testing.assert_allclose(distribution.probs, expected / expected.sum(), rtol=1e-4)
    np.testing.assert_allclose(found, value[0], rtol=1e-4)


@pytest.mark.parametrize("resume", ["latest", "maskable_ppo_7_steps.zip"])
def test_a_checkpoint_of_maskable_ppo_that_is_not_there_is_one_line(resume, tmp_path):
    find = load("examples/maskable_ppo.py").checkpoint_of
    with pytest.raises(SystemExit, match=r"^error: there is no checkpoint .*zip; --resume takes"):
        find(tmp_path, resume)
    for steps in (900, 1000):
        (tmp_path / f"maskable_ppo_{steps}_steps.zip").touch()
    assert find(tmp_path, "latest").name == "maskable_ppo_1000_steps.zip"


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
