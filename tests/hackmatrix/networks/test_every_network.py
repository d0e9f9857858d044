"""Every network that the task offers trains, is loaded again, plays and is measured."""

import pytest

from hackmatrix.play.agents import load_agent
from hackmatrix.play.evaluation import measure
from hackmatrix.play.replay import record
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.networks import is_recurrent
from ppo_mask.runner import main

NETWORKS = ["mlp", "board", "recurrent", "flat"]
SMALL = "--num-envs 4 --num-steps 4 --total-timesteps 32 --hidden-dim 8 --num-layers 1"


def test_the_networks_are_those_tested_here():
    assert list(TASK.networks) == NETWORKS


@pytest.mark.slow
@pytest.mark.parametrize("network", NETWORKS)
def test_it_trains_and_plays(tmp_path, network):
    flags = ["--checkpoint-dir", str(tmp_path), "--run-name", "run", "--network", network]
    assert main(TASK, DEFAULTS, [*flags, *SMALL.split()]) == 0
    agent = load_agent(str(tmp_path / "run"))
    assert is_recurrent(agent.model) == (network == "recurrent")
    replay = record(agent, 0, max_steps=4)
    assert len(replay.frames) > 1
    assert measure(agent, 0, 4, max_steps=4).episodes == 4
