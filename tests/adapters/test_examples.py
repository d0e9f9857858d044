"""The examples that train on other libraries' environments, and what a checkpoint keeps of them."""

import dataclasses
import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import ppo_mask as pm
from ppo_mask.adapters._on_host._workers import Workers
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.checkpoints import RunDir, load_policy
from ppo_mask.envs._shapes import shapes_of
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import main
from python_games import Climb
from same_run import assert_same_run
from source import load

ELSEWHERE, PYTHON, ZOO, TASKS = (
    load(f"examples/train_{name}.py") for name in ("elsewhere", "gymnasium", "pettingzoo", "tasks")
)
SMALL = ["--num-envs=4", "--num-steps=8", "--hidden-dim=8", "--log-interval=1", "--no-tensorboard"]
GAME = ["--env-id", "python_games:Climb-v0"]
SELF = ["--library", "pgx", "--name", "tic_tac_toe", "--opponent", "self", "--eval-interval", "1"]
RUNS = {
    "gymnax": ("FrozenLake-misc", 4),
    "jumanji": ("Snake-v1", 4),
    "navix": ("Navix-Empty-5x5-v0", 7),
}


@pytest.fixture(autouse=True)
def folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)


def run(example, *words):
    return main(example.TASK, example.DEFAULTS, words)


@pytest.mark.slow
@pytest.mark.parametrize("library", RUNS)
def test_run_is_saved_and_resumed(library):
    pytest.importorskip(library, reason=f"pip install 'ppo-mask[{library}]'")
    name, actions = RUNS[library]
    begin = ["--library", library, "--name", name, *SMALL, "--run-name", "first"]
    assert run(ELSEWHERE, *begin, "--total-timesteps", "64") == 0
    assert run(ELSEWHERE, "--resume", "latest", "--total-timesteps", "128") == 0
    assert RunDir(Path("checkpoints/first")).steps()[-1] == 4
    only_the_last = jnp.arange(actions) == actions - 1
    policy = load_policy("checkpoints/first")
    shown = shapes_of(ELSEWHERE.make_env(ELSEWHERE.Elsewhere(library, name))).timestep
    observation = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shown.observation)
    assert policy(observation, only_the_last) == actions - 1


@pytest.mark.slow
def test_self_play_is_resumed_to_the_bit_and_its_policy_may_be_the_opponent(tmp_path):
    pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")
    begin = [*SELF, *SMALL[:-1], "--renew-every", "3"]
    assert run(ELSEWHERE, *begin, "--run-name", "whole", "--total-timesteps", "224") == 0
    # Two updates are not a multiple of three: the copy comes from the checkpoint.
    assert run(ELSEWHERE, *begin, "--run-name", "cut", "--total-timesteps", "64") == 0
    assert run(ELSEWHERE, "--resume", "checkpoints/cut", "--total-timesteps", "224") == 0
    whole, cut = (RunDir(tmp_path / "checkpoints" / name) for name in ("whole", "cut"))
    assert_same_run(whole, cut)

    settings = ELSEWHERE.Elsewhere("pgx", "tic_tac_toe", opponent="checkpoints/cut")
    assert isinstance(ELSEWHERE.make_env(settings).opponent.network, MLPActorCritic)
    settings = dataclasses.replace(settings, name="connect_four")
    with pytest.raises(ValueError, match="MLPActorCritic is for another game: connect_four"):
        ELSEWHERE.make_env(settings)


@pytest.mark.slow
def test_one_policy_plays_several_tasks_and_the_log_has_the_return_of_each():
    pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")

    def returns(*words):
        assert run(TASKS, *SMALL[2:], "--num-envs=12", "--total-timesteps=12_288", *words) == 0
        lines = map(json.loads, Path("checkpoints/a/metrics.jsonl").read_text().splitlines())
        return [{x: line[x] for x in line if x.startswith("return/")} for line in lines][-1]

    two = returns("--run-name=a", "--tasks=CartPole-v1,MountainCar-v0")
    assert two.keys() == {"return/CartPole-v1", "return/MountainCar-v0"}
    assert two["return/CartPole-v1"] > 8
    assert two["return/MountainCar-v0"] == -200
    more = returns("--resume=a", "--total-timesteps=24_576")
    assert more.keys() == two.keys()
    assert run(TASKS, "evaluate", "a", "--episodes=8", "--max-steps=20") == 0


@pytest.mark.slow
def test_run_in_python_is_saved_resumed_and_watched(capfd, monkeypatch):
    begin = [*GAME, *SMALL, "--run-name=a", "--total-timesteps=64", "--eval-interval=2"]
    assert run(PYTHON, *begin) == 0
    assert "warning" not in capfd.readouterr().err
    assert run(PYTHON, "--resume=latest", "--total-timesteps=128") == 0
    assert "Climb-v0: environments in Python are in no checkpoint" in capfd.readouterr().err
    lines = map(json.loads, Path("checkpoints/a/metrics.jsonl").read_text().splitlines())
    logged = [line["update"] for line in lines if "train/steps_per_second" in line]
    assert logged == [1, 2, 3, 4]
    _, first = GymnasiumEnv(Climb).reset(jax.random.key(0))
    assert pm.load_policy("checkpoints/a")(first.observation, first.action_mask) in range(5)

    assert run(PYTHON, "watch", "checkpoints/a", "--max-steps=2") == 0
    watched = capfd.readouterr().out
    assert watched.startswith("['hand'] = [")
    assert "numbers" not in watched  # Of the host's state, which says nothing to a reader.

    def fall_over(game, action):
        raise RuntimeError("the table fell over")

    monkeypatch.setattr(Climb, "step", fall_over)
    assert run(PYTHON, "watch", "checkpoints/a") == 2
    printed = capfd.readouterr()
    assert "error: Climb-v0 raised RuntimeError: the table fell over at " in printed.err
    assert "nan" not in printed.out


@pytest.mark.slow
def test_self_play_in_python_is_resumed_and_its_policy_may_be_the_opponent():
    pytest.importorskip("pettingzoo", reason="pip install 'ppo-mask[pettingzoo]'")
    begin = ["--opponent=self", "--renew-every=3", "--eval-interval=2", *SMALL, "--run-name=a"]
    assert run(ZOO, *begin, "--total-timesteps=64") == 0
    assert run(ZOO, "--resume=latest", "--total-timesteps=128") == 0
    assert RunDir(Path("checkpoints/a")).steps()[-1] == 4
    assert isinstance(
        ZOO.make_env(ZOO.Seat(opponent="checkpoints/a")).opponent.network, MLPActorCritic
    )


@pytest.mark.slow
def test_an_error_of_the_game_ends_the_run_in_one_line(capfd):
    words = ["--env-id", "python_games:Crash-v0", "--total-timesteps=640", "--save-interval=1"]
    assert run(PYTHON, *words, *SMALL, "--run-name=a", "--num-steps=4") == 1
    (printed,) = capfd.readouterr().err.splitlines()
    assert "Crash-v0 raised RuntimeError: the table fell over at " in printed
    assert printed.endswith("checkpoints/a/checkpoints/1")


@pytest.mark.parametrize(
    ("example", "words", "line"),
    [
        (ELSEWHERE, ["--name", "Pendulum-v1"], "Pendulum-v1 of gymnax has actions of Box("),
        (ELSEWHERE, ["--opponent", "self"], "gymnax has no opponents: leave opponent out"),
        (ELSEWHERE, ["--lr", "cosine"], "--learning-rate must be a number, got 'cosine'"),
        (PYTHON, ["--env-id", "Pendulum-v1"], "Pendulum-v1 has actions of Box("),
        (
            PYTHON,
            ["--env-id", "Nothing-v0"],
            "Nothing-v0 raised NameNotFound: Environment `Nothing` does",
        ),
        (PYTHON, [*GAME, "--num-seeds", "2"], "--num-seeds does not go with an environment"),
        (PYTHON, ["--env-kwargs", "size=3"], "--env-kwargs must be an object in JSON, such as '{"),
        (PYTHON, ["--env-kwargs", "[3]"], "--env-kwargs must be an object in JSON, such as '{"),
        (TASKS, ["--tasks", "Pong"], "--tasks must be CartPole-v1 or Acrobot-v1 or MountainCar-v0"),
        (TASKS, ["--tasks"], "weights must be finite, 0 or more, and not all 0"),
        (ZOO, ["--game", "nothing_v0"], "there is no game nothing_v0: No module named 'pettingzoo"),
        (PYTHON, ["--num-workers", "-1"], "--num-workers must be at least 0"),
    ],
)
def test_what_cannot_be_is_one_line(example, words, line, capfd):
    if example in (ELSEWHERE, TASKS):
        pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")
    assert run(example, *words, *SMALL) == 2
    (printed,) = capfd.readouterr().err.splitlines()
    assert printed.startswith("error: " + line)


def test_settings_reach_the_environment():
    settings = PYTHON.InPython("python_games:Picture-v0", '{"actions": 7}', 1, 1)
    with PYTHON.make_env(settings) as env:
        assert env.num_actions == 7
        state, timestep = env.reset(jax.random.key(0))
        # A picture stays one, for convolutions.
        assert timestep.observation.shape == (8, 8, 3)
        (stepper,) = env._host._steppers.values()
        assert isinstance(stepper, Workers)
        assert env.step(jax.random.key(0), state, 0)[1].truncated
