"""What one change of the settings is worth on six tasks of other libraries, for docs/tuning.md.

    pip install 'ppo-mask[gymnax,jumanji]'
    python benchmarks/changes.py all     # or names; goes on where it was stopped
    python benchmarks/results.py page    # writes the table

Each line differs from the first in what it names. A number is the mean return of the seeds, each of
which plays 256 fresh episodes with sampled actions.
"""

import argparse
import dataclasses
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any, NamedTuple

import jax

import ppo_mask as pm

KEPT = Path(__file__).parent / "curves" / "changes.json"
SEEDS, EPISODES = range(3), 256

BASE = pm.PPO(num_envs=32, learning_rate=1e-3)
MLP = {"hidden_dim": 64, "layer_norm": True}
WIDTHS = {"conv": 64, "sets": 32}


class Task(NamedTuple):
    """A task: its library and name there, the network made for its kind, and steps of training."""

    library: str
    name: str
    kind: str | None
    steps: int


TASKS = {
    "Acrobot": Task("gymnax", "Acrobot-v1", None, 500_000),
    "MountainCar": Task("gymnax", "MountainCar-v0", None, 500_000),
    "Breakout": Task("gymnax", "Breakout-MinAtar", "conv", 500_000),
    "Space Invaders": Task("gymnax", "SpaceInvaders-MinAtar", "conv", 500_000),
    "Knapsack": Task("jumanji", "Knapsack-v1", "sets", 200_000),
    "2048": Task("jumanji", "Game2048-v1", "conv", 300_000),
}


UNCHANGED = "(no change)"


class Change(NamedTuple):
    """What differs: settings of PPO, of the MLP, or the network made for the task's kind."""

    ppo: Mapping[str, Any] = MappingProxyType({})
    mlp: Mapping[str, Any] = MappingProxyType({})
    fits: bool = False


_BOTH = {"normalize_rewards": True, "num_minibatches": 16}
CHANGES = {
    UNCHANGED: Change(),
    "`--anneal-lr`": Change({"anneal_lr": True}),
    "`--learning-rate 3e-4`": Change({"learning_rate": 3e-4}),
    "`--learning-rate 3e-3`": Change({"learning_rate": 3e-3}),
    "`--normalize-rewards`": Change({"normalize_rewards": True}),
    "`--normalize-observations`": Change({"normalize_observations": True}),
    "`--gamma 0.997`": Change({"gamma": 0.997}),
    "`--gae-lambda 0.9`": Change({"gae_lambda": 0.9}),
    "`--ent-coef 0.001`": Change({"ent_coef": 0.001}),
    "`--num-envs 64 --num-steps 64`": Change({"num_envs": 64, "num_steps": 64}),
    "`--num-minibatches 16`": Change({"num_minibatches": 16}),
    "`--hidden-dim 256`": Change(mlp={"hidden_dim": 256}),
    "`--activation relu`": Change(mlp={"activation": "relu"}),
    "no layer norm": Change(mlp={"layer_norm": False}),
    "`policy_gain=4`": Change(mlp={"policy_gain": 4.0}),
    "`--normalize-rewards --num-minibatches 16`": Change(_BOTH),
    "both and `--normalize-observations`": Change(_BOTH | {"normalize_observations": True}),
    "both and `--hidden-dim 256`: the defaults now": Change(_BOTH, {"hidden_dim": 256}),
    "the network of the task's kind": Change(fits=True),
}


def make_env(task: Task) -> pm.AbstractEnv[Any]:
    """Makes the environment."""
    from ppo_mask.adapters.gymnax import GymnaxEnv
    from ppo_mask.adapters.jumanji import JumanjiEnv

    return GymnaxEnv(task.name) if task.library == "gymnax" else JumanjiEnv(task.name)


def train(task: Task, env: pm.AbstractEnv[Any], change: Change, seed: int) -> float:
    """Trains once; returns the mean return of fresh episodes."""
    network_key, key, eval_key = jax.random.split(jax.random.key(seed), 3)
    if change.fits and task.kind is not None:
        model = pm.network_for(env, task.kind, hidden_dim=WIDTHS[task.kind], key=network_key)
    else:
        model = pm.network_for(env, "mlp", key=network_key, **MLP | change.mlp)
    trainer = pm.Trainer(env, dataclasses.replace(BASE, **change.ppo))
    state = trainer.train(trainer.init(model, key), task.steps)
    found = pm.evaluate(state.model, env, eval_key, EPISODES, greedy=False)
    return round(found.mean_return, 4)


def read() -> dict[str, dict[str, list[float]]]:
    """Returns what is kept: the seeds' returns by task and change."""
    return json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}


def run(name: str) -> None:
    """Trains with each change that is not kept yet, and keeps the returns."""
    task = TASKS[name]
    env, done = make_env(task), read().get(name, {})
    for title, change in CHANGES.items():
        if title in done or (change.fits and task.kind is None):
            continue
        began = time.process_time()
        returns = [train(task, env, change, seed) for seed in SEEDS]
        kept = read()
        kept.setdefault(name, {})[title] = returns
        KEPT.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")
        seconds = time.process_time() - began
        print(f"{name}, {title}: {returns}, {seconds:.0f} core seconds", flush=True)


def table() -> list[str]:
    """Returns the table's lines: a mean return for each change and task, and how sure it is."""
    kept = read()
    lines = [f"| | {' | '.join(TASKS)} |", f"|{'---|' * (len(TASKS) + 1)}"]
    for title in CHANGES:
        cells = [compare(kept[name].get(title), kept[name][UNCHANGED]) for name in TASKS]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def compare(returns: list[float] | None, others: list[float]) -> str:
    """Returns the mean, marked if it differs by more than both standard deviations together."""
    if returns is None:
        return ""
    over, sure = mean(returns) - mean(others), stdev(returns) + stdev(others)
    text = f"{mean(returns):,.{0 if abs(mean(returns)) > 1000 else 1}f}"
    return f"**{text}**" if over > sure else f"{text} ↓" if over < -sure else text


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="What one change of the settings is worth.")
    parser.add_argument("names", nargs="+", metavar="TASK", choices=["all", *TASKS])
    names = parser.parse_args(arguments).names
    for name in TASKS if "all" in names else names:
        run(name)


if __name__ == "__main__":
    main()
