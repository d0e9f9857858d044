"""The example that trains on environments in Python: logs, checkpoints, resume, and learning."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.runner import main
from python_games import Climb, Invalid, best_move

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_gymnasium.py"
SMALL = ["--num-envs=4", "--num-steps=8", "--hidden-dim=8", "--log-interval=1", "--no-tensorboard"]
GAME = ["--env-id", "python_games:Climb-v0"]


@pytest.fixture
def example(monkeypatch, tmp_path):
    spec = importlib.util.spec_from_file_location("train_gymnasium", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "train_gymnasium", module)
    spec.loader.exec_module(module)
    monkeypatch.chdir(tmp_path)
    return lambda *words: main(module.TASK, module.DEFAULTS, words)


@pytest.mark.slow
def test_run_is_saved_and_resumed(example, capfd):
    assert example(*GAME, *SMALL, "--run-name=a", "--total-timesteps=64", "--eval-interval=2") == 0
    assert "warning" not in capfd.readouterr().err
    assert example("--resume=latest", "--total-timesteps=128") == 0
    assert "Climb-v0: environments in Python are in no checkpoint" in capfd.readouterr().err
    lines = map(json.loads, Path("checkpoints/a/metrics.jsonl").read_text().splitlines())
    logged = [line["update"] for line in lines if "train/steps_per_second" in line]
    assert logged == [1, 2, 3, 4]
    _, first = GymnasiumEnv(Climb).reset(jax.random.key(0))
    assert pm.load_policy("checkpoints/a")(first.observation, first.action_mask) in range(5)


@pytest.mark.slow
def test_images_reach_the_convolutions(example, capfd):
    words = ["--env-id", "python_games:Picture-v0", "--total-timesteps=32"]
    assert example(*words, *SMALL, "--run-name=a") == 0
    assert "ConvActorCritic" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--env-id", "Pendulum-v1"], "error: Pendulum-v1 has actions of Box("),
        (["--env-id", "Nothing-v0"], "error: there is no 'Nothing-v0' for gymnasium.make: "),
        ([*GAME, "--num-seeds", "2"], "error: an environment that lives in Python trains one seed"),
        (["--env-kwargs", "size=3"], "error: --env-kwargs must be an object in JSON, such as '{"),
        (["--env-kwargs", "[3]"], "error: --env-kwargs must be an object in JSON, such as '{"),
        (["--num-workers", "-1"], "error: --num-workers must be at least 0"),
    ],
)
def test_what_cannot_be_is_one_line(example, words, line, capfd):
    assert example(*words, *SMALL) == 2
    (printed,) = capfd.readouterr().err.splitlines()
    assert printed.startswith(line)


@pytest.mark.slow
def test_an_environment_gets_its_arguments(example, capfd):
    words = [*GAME, "--env-kwargs", '{"crash_at": 2}', "--total-timesteps=64"]
    assert example(*words, *SMALL, "--run-name=a") == 1
    assert "the table fell over" in capfd.readouterr().err


def test_an_error_of_the_game_ends_the_run_in_one_line(example, capfd):
    words = ["--env-id", "python_games:Crash-v0", "--total-timesteps=640", "--save-interval=1"]
    assert example(*words, *SMALL, "--run-name=a", "--num-steps=4") == 1
    (printed,) = capfd.readouterr().err.splitlines()
    assert "Crash-v0 raised RuntimeError: the table fell over at " in printed
    assert printed.endswith("checkpoints/a/checkpoints/1")


def test_an_error_in_an_evaluation_names_it(example, capfd, monkeypatch):
    words = ["--env-id", "python_games:Crash-v0", "--total-timesteps=64", "--eval-interval=1"]
    assert example(*words, *SMALL, "--run-name=a", "--num-steps=4") == 1
    (printed,) = capfd.readouterr().err.splitlines()
    assert printed.startswith("error: evaluation at update 1: Crash-v0 raised RuntimeError")


def fall_over(game, action):
    raise RuntimeError("the table fell over")


@pytest.mark.slow
def test_an_error_in_a_watched_episode_names_it(example, capfd, monkeypatch):
    assert example(*GAME, *SMALL, "--run-name=a", "--total-timesteps=32") == 0
    capfd.readouterr()
    assert example("watch", "checkpoints/a", "--max-steps=2") == 0
    watched = capfd.readouterr().out
    assert watched.startswith("['hand'] = [")
    assert "numbers" not in watched  # Of the host's state, which says nothing to a reader.
    monkeypatch.setattr(Climb, "step", fall_over)
    assert example("watch", "checkpoints/a") == 2
    printed = capfd.readouterr()
    assert "error: Climb-v0 raised RuntimeError: the table fell over at " in printed.err
    assert "nan" not in printed.out


def best_return(episodes=200):
    total, game = 0, Climb()
    for seed in range(episodes):
        observation, _ = game.reset(seed=seed)
        over = False
        while not over:
            observation, reward, over, _, _ = game.step(best_move(observation))
            total += reward
    return total / episodes


@pytest.mark.optimized
@pytest.mark.parametrize("seed", [0, *(pytest.param(x, marks=pytest.mark.nightly) for x in (1, 2))])
@pytest.mark.parametrize("game", [Invalid, Climb])
def test_it_learns(game, seed):
    env = GymnasiumEnv(game, flatten=True)
    config = pm.PPOConfig(num_envs=8, num_steps=128, learning_rate=2e-3, ent_coef=0.01)
    model = pm.MLPActorCritic.for_env(env, hidden_dim=64, key=jax.random.key(seed))
    trainer = pm.Trainer(env, config)
    state = trainer.init(model, jax.random.key(seed + 10))
    state = trainer.train(state, 60_000)
    result = pm.evaluate(state.model, env, jax.random.key(1), 64)
    if game is Invalid:
        assert result.mean_return > 95  # Of 100; at random, 10.
    else:
        assert result.mean_return > best_return() - 1
    assert np.isfinite(result.episode_return).all()
