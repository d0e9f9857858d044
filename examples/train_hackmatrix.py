"""Trains an agent on HackMatrix, as ``hackmatrix train`` does."""

from hackmatrix.task import DEFAULTS, TASK
from ppo_mask.runner import main

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS, description="Trains an agent on HackMatrix with PPO."))
