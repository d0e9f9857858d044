"""The example that trains on environments in Python: settings, and a run of it."""

import importlib.util
import json
import sys
from pathlib import Path

import jax
import pytest

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.from_gymnasium._workers import Workers
from ppo_mask.runner import main
from python_games import Climb

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
    return module


def run(example, *words):
    return main(example.TASK, example.DEFAULTS, words)


@pytest.mark.slow
def test_run_is_saved_resumed_and_watched(example, capfd, monkeypatch):
    begin = [*GAME, *SMALL, "--run-name=a", "--total-timesteps=64", "--eval-interval=2"]
    assert run(example, *begin) == 0
    assert "warning" not in capfd.readouterr().err
    assert run(example, "--resume=latest", "--total-timesteps=128") == 0
    assert "Climb-v0: environments in Python are in no checkpoint" in capfd.readouterr().err
    lines = map(json.loads, Path("checkpoints/a/metrics.jsonl").read_text().splitlines())
    logged = [line["update"] for line in lines if "train/steps_per_second" in line]
    assert logged == [1, 2, 3, 4]
    _, first = GymnasiumEnv(Climb).reset(jax.random.key(0))
    assert pm.load_policy("checkpoints/a")(first.observation, first.action_mask) in range(5)

    assert run(example, "watch", "checkpoints/a", "--max-steps=2") == 0
    watched = capfd.readouterr().out
    assert watched.startswith("['hand'] = [")
    assert "numbers" not in watched  # Of the host's state, which says nothing to a reader.

    def fall_over(game, action):
        raise RuntimeError("the table fell over")

    monkeypatch.setattr(Climb, "step", fall_over)
    assert run(example, "watch", "checkpoints/a") == 2
    printed = capfd.readouterr()
    assert "error: Climb-v0 raised RuntimeError: the table fell over at " in printed.err
    assert "nan" not in printed.out


@pytest.mark.slow
def test_an_error_of_the_game_ends_the_run_in_one_line(example, capfd):
    words = ["--env-id", "python_games:Crash-v0", "--total-timesteps=640", "--save-interval=1"]
    assert run(example, *words, *SMALL, "--run-name=a", "--num-steps=4") == 1
    (printed,) = capfd.readouterr().err.splitlines()
    assert "Crash-v0 raised RuntimeError: the table fell over at " in printed
    assert printed.endswith("checkpoints/a/checkpoints/1")


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
    assert run(example, *words, *SMALL) == 2
    (printed,) = capfd.readouterr().err.splitlines()
    assert printed.startswith(line)


def test_settings_reach_the_environment(example):
    settings = example.InPython("python_games:Picture-v0", '{"actions": 7}', 1, 1)
    with example.make_env(settings) as env:
        assert env.num_actions == 7
        state, timestep = env.reset(jax.random.key(0))
        # A picture stays one, for convolutions.
        assert timestep.observation.shape == (8, 8, 3)
        (session,) = env._host._sessions.values()
        assert isinstance(session.stepper, Workers)
        assert env.step(jax.random.key(0), state, 0)[1].truncated
