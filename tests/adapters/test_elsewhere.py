"""The example that trains on other libraries' environments, and what a checkpoint keeps of them."""

import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from ppo_mask.checkpoints import RunFolder, load_policy
from ppo_mask.runner import main
from same_run import assert_same_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_elsewhere.py"
SMALL = ["--num-envs=4", "--num-steps=8", "--hidden-dim=8", "--log-interval=1", "--no-tensorboard"]
HOW = {
    "gymnax": ["--name", "FrozenLake-misc"],
    "jumanji": ["--name", "Snake-v1"],
    "navix": ["--name", "Navix-Empty-5x5-v0"],
    "pgx": ["--name", "tic_tac_toe", "--opponent", "self", "--eval-interval", "1"],
}
SIZES = {"gymnax": (1, 4), "jumanji": (12 * 12 * 5 + 1 + 4, 4), "navix": (75, 7), "pgx": (18, 9)}


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("train_elsewhere", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_elsewhere"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.optimized
@pytest.mark.parametrize("library", HOW)
def test_run_is_saved_and_resumed(library, example, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"pip install 'ppo-mask[{library}]'")
    monkeypatch.chdir(tmp_path)
    begin = ["--library", library, *HOW[library], *SMALL, "--run-name", "first"]
    assert main(example.TASK, example.DEFAULTS, [*begin, "--total-timesteps", "64"]) == 0
    resume = ["--resume", "latest", "--total-timesteps", "128"]
    assert main(example.TASK, example.DEFAULTS, resume) == 0
    size, actions = SIZES[library]
    only_the_last = jnp.arange(actions) == actions - 1
    policy = load_policy("checkpoints/first")
    assert policy(jnp.zeros(size), only_the_last) == actions - 1


def test_unfit_environment_is_refused_in_one_line(example, tmp_path, monkeypatch, capsys):
    pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")
    monkeypatch.chdir(tmp_path)
    assert main(example.TASK, example.DEFAULTS, ["--name", "Pendulum-v1"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: Pendulum-v1 of gymnax has actions of Box(")
    assert main(example.TASK, example.DEFAULTS, ["--opponent", "self"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: gymnax has no opponents: leave opponent out")
    assert main(example.TASK, example.DEFAULTS, ["--lr", "cosine"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == "error: --lr must be a number, got 'cosine'"


@pytest.mark.optimized
def test_self_play_is_resumed_to_the_bit(example, tmp_path, monkeypatch):
    pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")
    monkeypatch.chdir(tmp_path)
    begin = ["--library", "pgx", *HOW["pgx"], *SMALL[:-1], "--renew-every", "3"]

    def train(*words):
        assert main(example.TASK, example.DEFAULTS, [*words]) == 0

    train(*begin, "--run-name", "whole", "--total-timesteps", "224")
    # Two updates are not a multiple of three: the copy comes from the checkpoint.
    train(*begin, "--run-name", "cut", "--total-timesteps", "64")
    train("--resume", "checkpoints/cut", "--total-timesteps", "224")
    whole, cut = (RunFolder(tmp_path / "checkpoints" / name) for name in ("whole", "cut"))
    assert_same_run(whole, cut)


@pytest.mark.optimized
def test_a_trained_policy_may_be_the_opponent(example, tmp_path, monkeypatch, capsys):
    pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")
    monkeypatch.chdir(tmp_path)
    game = ["--library", "pgx", "--name", "tic_tac_toe"]
    first = [*game, "--opponent", "random", *SMALL, "--run-name", "first"]
    assert main(example.TASK, example.DEFAULTS, [*first, "--total-timesteps", "64"]) == 0
    second = ["--opponent", "checkpoints/first", *SMALL, "--total-timesteps", "64"]
    assert main(example.TASK, example.DEFAULTS, [*game, *second]) == 0
    capsys.readouterr()
    wrong = ["--library", "pgx", "--name", "connect_four", *second]
    assert main(example.TASK, example.DEFAULTS, wrong) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: the opponent MLPActorCritic is for another game: connect_four")
