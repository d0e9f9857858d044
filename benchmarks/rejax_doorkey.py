"""Trains rejax's PPO on navix's DoorKey-8x8, with the settings of navix's own baseline.

    pip install 'ppo-mask[adapters]' rejax
    python benchmarks/rejax_doorkey.py 1_048_576     # as many steps as navix's baseline
    python benchmarks/rejax_doorkey.py 20_000_000    # as many as the row in docs/results.md

It prints the mean return of 256 fresh episodes, with sampled actions, for each of three seeds. The
settings are those of baselines/rejax/configs/navix_doorkey_8x8_1m.yaml in navix's repository.
"""

import argparse
import time

import jax
import rejax  # pyright: ignore[reportMissingImports] - not in dev
from rejax.evaluate import evaluate  # pyright: ignore[reportMissingImports]

SETTINGS = {
    "env": "navix/Navix-DoorKey-8x8-v0",
    "agent_kwargs": {"activation": "tanh"},
    "num_envs": 16,
    "num_steps": 128,
    "num_epochs": 2,
    "num_minibatches": 1,
    "learning_rate": 3e-4,
    "max_grad_norm": 1,
    "gamma": 0.95,
    "gae_lambda": 0.9,
    "clip_eps": 0.2,
    "ent_coef": 0.01,
    "vf_coef": 0.5,
    "normalize_observations": False,
}


def main() -> None:
    """Trains each seed, and evaluates it."""
    parser = argparse.ArgumentParser(description="rejax's PPO on DoorKey.")
    parser.add_argument("steps", type=int)
    steps = parser.parse_args().steps
    algorithm = rejax.PPO.create(
        total_timesteps=steps, eval_freq=steps, skip_initial_evaluation=True, **SETTINGS
    )
    train = jax.jit(algorithm.train)
    for seed in range(3):
        began = time.process_time()
        state, _ = train(jax.random.key(seed))
        act = algorithm.make_act(state)
        key = jax.random.key(1000 + seed)
        _, returns = evaluate(act, key, algorithm.env, algorithm.env_params, 256)
        seconds = time.process_time() - began
        print(f"seed {seed}: {returns.mean():.3f}, {seconds:.0f} core seconds", flush=True)


if __name__ == "__main__":
    main()
