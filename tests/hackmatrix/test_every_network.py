"""Every network that the example offers trains, is loaded again, plays and is measured."""

import importlib.util
from pathlib import Path

import pytest

from hackmatrix.agents import trained
from hackmatrix.evaluation import measure
from hackmatrix.replay import record
from ppo_mask.networks import is_recurrent
from ppo_mask.runner import main

pytestmark = pytest.mark.unoptimized

PROGRAM = Path(__file__).parents[2] / "examples" / "train_hackmatrix.py"
NETWORKS = ["mlp", "board", "recurrent", "flat"]
SMALL = "--num-envs 4 --num-steps 4 --total-timesteps 32 --hidden-dim 8 --num-layers 1"


@pytest.fixture(scope="module")
def program():
    spec = importlib.util.spec_from_file_location("train_hackmatrix", PROGRAM)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    assert list(program.TASK.networks) == NETWORKS
    return program


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_it_trains_and_plays(tmp_path, program, network):
    flags = ["--checkpoint-dir", str(tmp_path), "--run-name", "run", "--network", network]
    assert main(program.TASK, program.DEFAULTS, [*flags, *SMALL.split()]) == 0
    agent = trained(str(tmp_path / "run"))
    assert is_recurrent(agent.model) == (network == "recurrent")
    replay = record(agent, 0, max_steps=4)
    assert len(replay.frames) > 1
    assert measure(agent, 0, 4, max_steps=4).episodes == 4
