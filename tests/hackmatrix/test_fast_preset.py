"""What the preset ``fast`` learns in its first half million steps."""

import pytest

from hackmatrix.env import HackMatrix
from hackmatrix.play.agents import NETWORKS, Agent
from hackmatrix.play.evaluation import measure
from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.checkpoints import load_policy
from ppo_mask.runner import main


@pytest.mark.optimized
def test_fast_reaches_stage_three_in_half_a_million_steps(tmp_path):
    flags = ["--preset=fast", "--seed=1", "--total-timesteps=524288", "--no-tensorboard"]
    assert main(TASK, DEFAULTS, [*flags, f"--checkpoint-dir={tmp_path}", "--run-name=fast"]) == 0
    model = load_policy(tmp_path / "fast", NETWORKS).model
    found = measure(Agent("fast", model, greedy=False, env=HackMatrix()), seed=0, episodes=512)
    # Seeds 1 to 3 reach 3.1 to 3.4 here; a random policy ends in stage 1.2.
    assert found.estimates["stage"].mean > 2.7
