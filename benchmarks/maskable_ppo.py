"""Compares this library with sb3-contrib's MaskablePPO on two environments written in Python.

pip install 'ppo-mask[sb3]'
python benchmarks/maskable_ppo.py --steps 40_960 --seeds 3

Both libraries use MaskablePPO's default settings: one environment, 2,048 steps per rollout,
minibatches of 64, 10 epochs, two hidden layers of 64, a learning rate of 3e-4. The libraries take
turns in one process. With ``--num-envs 8`` both use eight environments, with 256 steps of each.
"""

# sb3-contrib is large, so the extra ``dev`` does not have it.
# pyright: reportMissingImports=false

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import numpy as np

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv

BATCH, MINIBATCH, EPOCHS = 2048, 64, 10


def games() -> dict[str, Any]:
    """Loads two of the tests' environments: a task with invalid actions, and a card game."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    import python_games

    return {"invalid actions": python_games.Invalid, "card game": python_games.Climb}


def train_ours(game: Any, steps: int, seed: int, num_envs: int, num_workers: int) -> Any:
    """Returns the steps/s of the median update and of the whole run, and the final mean return."""
    env = GymnasiumEnv(game, num_workers=num_workers)
    config = pm.PPO(
        num_envs=num_envs,
        num_steps=BATCH // num_envs,
        num_minibatches=BATCH // MINIBATCH,
        update_epochs=EPOCHS,
        learning_rate=3e-4,
        anneal_lr=False,
        ent_coef=0.0,
    )
    model = pm.network_for(env, "mlp", hidden_dim=64, key=jax.random.key(seed))
    began = time.perf_counter()
    trainer, history = pm.Trainer(env, config), pm.History()
    state = trainer.init(model, jax.random.key(seed + 1000))
    trainer.train(state, steps, callbacks=[history], log_interval=1)
    seconds = time.perf_counter() - began
    env.close()
    speed = float(np.median(history["train/steps_per_second"]))
    returns = history["train/mean_episode_return"]
    return speed, steps / seconds, float(np.mean(returns[-5:]))


def train_theirs(game: Any, steps: int, seed: int, num_envs: int) -> Any:
    """Returns the results of :func:`train_ours` for MaskablePPO."""
    import torch
    from sb3_contrib import MaskablePPO
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_vec_env

    class Times(BaseCallback):
        def __init__(self) -> None:
            super().__init__()
            self.times: list[float] = []
            self.returns: list[float] = []

        def _on_rollout_start(self) -> None:
            self.times.append(time.perf_counter())

        def _on_step(self) -> bool:
            infos = self.locals["infos"]
            self.returns += [info["episode"]["r"] for info in infos if "episode" in info]
            return True

    torch.set_num_threads(1)  # With more threads on a busy machine, no run finished.
    dicts = game().observation_space.__class__.__name__ == "Dict"
    policy = "MultiInputPolicy" if dicts else "MlpPolicy"
    envs = make_vec_env(game, n_envs=num_envs, seed=seed)
    began = time.perf_counter()
    model = MaskablePPO(policy, envs, n_steps=BATCH // num_envs, seed=seed, device="cpu")
    times = Times()
    model.learn(steps, callback=times)
    seconds = time.perf_counter() - began
    speed = float(np.median(BATCH / np.diff(times.times)))
    last = times.returns[-max(1, len(times.returns) * 5 * BATCH // steps) :]
    return speed, steps / seconds, float(np.mean(last))


def main() -> None:
    """Prints a line for each run, and the means over seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=20 * BATCH)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--num-envs", type=int, default=1)
    parser.add_argument("--num-workers", type=int, default=0, help="of ours")
    options = parser.parse_args()
    print("steps/s: of the median update, and of the whole run with compiling; return: at the end")
    for name, game in games().items():
        results: dict[str, list[Any]] = {"ppo_mask": [], "MaskablePPO": []}
        for seed in range(options.seeds):
            ours = train_ours(game, options.steps, seed, options.num_envs, options.num_workers)
            theirs = train_theirs(game, options.steps, seed, options.num_envs)
            for who, result in zip(results, (ours, theirs), strict=True):
                results[who].append(result)
                numbers = "{:8,.0f} {:8,.0f} steps/s, return {:6.2f}".format(*result)
                print(f"{name}, seed {seed}, {who:12}{numbers}", flush=True)
        means = {who: np.mean(rows, axis=0) for who, rows in results.items()}
        speed, whole, _ = means["ppo_mask"] / means["MaskablePPO"]
        returns = " against ".join(f"{mean[2]:.2f}" for mean in means.values())
        print(f"{name}: {speed:.1f} times the steps/s ({whole:.1f} with compiling), {returns}")


if __name__ == "__main__":
    main()
