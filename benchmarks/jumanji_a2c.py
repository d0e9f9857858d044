"""Trains jumanji's own A2C agent, with its networks and settings, for some minutes.

    python3 -m venv .venv-jumanji
    .venv-jumanji/bin/pip install 'jumanji[train]==1.1.2' 'jax<0.10'
    taskset -c 0 .venv-jumanji/bin/python benchmarks/jumanji_a2c.py snake --minutes 20 --seed 0

It has an environment of its own, for the extra ``train`` of jumanji pins an old tensorboardX, and
its agent calls what jax 0.10 no longer has. The minutes are of the wall clock, with compilation.
What is printed, a line for ``curves/jumanji_a2c.jsonl``, is measured as the rows of
docs/results.md are: the mean return of 256 fresh episodes, with sampled actions.
"""

# pyright: reportMissingImports=false

import argparse
import json
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
from jumanji import training
from jumanji.training import setup_train, utils
from jumanji.training.evaluator import Evaluator
from omegaconf import OmegaConf

TASKS = ("snake", "knapsack", "minesweeper", "job_shop", "game_2048")
EPISODES = 256


def train(task: str, minutes: float, seed: int) -> dict[str, Any]:
    """Trains until the time is over, and evaluates the last policy."""
    began = time.perf_counter()
    folder = Path(training.__path__[0]) / "configs" / "env"
    settings = OmegaConf.create({"agent": "a2c", "env": OmegaConf.load(folder / f"{task}.yaml")})
    env = setup_train.setup_env(settings)
    agent = setup_train.setup_agent(settings, env)
    key, eval_key = jax.random.split(jax.random.PRNGKey(seed))
    state = setup_train.setup_training_state(env, agent, key)
    update = jax.pmap(lambda x: agent.run_epoch(x)[0], axis_name="devices")
    while time.perf_counter() - began < 60 * minutes:
        state = jax.block_until_ready(update(state))
    seconds = time.perf_counter() - began
    core_seconds = time.process_time()
    # Without the reset at an episode's end that training needs.
    alone = setup_train._make_raw_env(settings)
    evaluator = Evaluator(alone, agent, EPISODES, stochastic=True)
    found = utils.first_from_device(evaluator.run_evaluation(state.params_state, eval_key))
    return {
        "task": settings.env.registered_version,
        "jumanji": version("jumanji"),
        "jax": version("jax"),
        "seed": seed,
        "seconds": round(seconds),
        "core_seconds": round(core_seconds),
        "steps": int(utils.first_from_device(state.acting_state).env_step_count),
        "return": round(float(found["episode_return"]), 4),
    }


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="jumanji's A2C for some minutes.")
    parser.add_argument("task", choices=TASKS)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    print(json.dumps(train(**vars(parser.parse_args()))), flush=True)


if __name__ == "__main__":
    main()
