"""The example that trains on other libraries' environments, and what a checkpoint keeps of them."""

import dataclasses
import importlib.util
import sys
from pathlib import Path

import jax.numpy as jnp
import pytest

from ppo_mask.checkpoints import RunFolder, load_policy
from ppo_mask.networks import MLPActorCritic
from ppo_mask.runner import main
from same_run import assert_same_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "train_elsewhere.py"
SMALL = ["--num-envs=4", "--num-steps=8", "--hidden-dim=8", "--log-interval=1", "--no-tensorboard"]
RUNS = {
    "gymnax": (["--name", "FrozenLake-misc"], 1, 4),
    "jumanji": (["--name", "Snake-v1"], 12 * 12 * 5 + 1 + 4, 4),
    "navix": (["--name", "Navix-Empty-5x5-v0"], 75, 7),
}
SELF = ["--library", "pgx", "--name", "tic_tac_toe", "--opponent", "self", "--eval-interval", "1"]


@pytest.fixture
def example():
    spec = importlib.util.spec_from_file_location("train_elsewhere", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["train_elsewhere"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("library", RUNS)
def test_run_is_saved_and_resumed(library, example, tmp_path, monkeypatch):
    pytest.importorskip(library, reason=f"pip install 'ppo-mask[{library}]'")
    monkeypatch.chdir(tmp_path)
    name, size, actions = RUNS[library]
    begin = ["--library", library, *name, *SMALL, "--run-name", "first"]
    assert main(example.TASK, example.DEFAULTS, [*begin, "--total-timesteps", "64"]) == 0
    resume = ["--resume", "latest", "--total-timesteps", "128"]
    assert main(example.TASK, example.DEFAULTS, resume) == 0
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


@pytest.mark.slow
def test_self_play_is_resumed_to_the_bit_and_its_policy_may_be_the_opponent(
    example, tmp_path, monkeypatch
):
    pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")
    monkeypatch.chdir(tmp_path)

    def train(*words):
        assert main(example.TASK, example.DEFAULTS, [*words]) == 0

    begin = [*SELF, *SMALL[:-1], "--renew-every", "3"]
    train(*begin, "--run-name", "whole", "--total-timesteps", "224")
    # Two updates are not a multiple of three: the copy comes from the checkpoint.
    train(*begin, "--run-name", "cut", "--total-timesteps", "64")
    train("--resume", "checkpoints/cut", "--total-timesteps", "224")
    whole, cut = (RunFolder(tmp_path / "checkpoints" / name) for name in ("whole", "cut"))
    assert_same_run(whole, cut)

    settings = example.Elsewhere("pgx", "tic_tac_toe", opponent="checkpoints/cut")
    assert isinstance(example.make_env(settings).opponent, MLPActorCritic)
    settings = dataclasses.replace(settings, name="connect_four")
    with pytest.raises(ValueError, match="MLPActorCritic is for another game: connect_four"):
        example.make_env(settings)
