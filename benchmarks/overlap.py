"""Compares rollouts with and without overlap on environments in Python, in turn in one run.

python benchmarks/overlap.py --microseconds 1000 --asleep --num-workers 16 --hidden-dim 512
"""

import argparse
import time
from functools import partial

import equinox as eqx
import gymnasium
import jax
import numpy as np

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.ppo import collect, start_rollout

STEPS = 128
ROUNDS = 4


class Slow(gymnasium.Wrapper):
    """CartPole with steps that take so many microseconds more, busy or asleep."""

    def __init__(self, microseconds: int, asleep: bool):
        super().__init__(gymnasium.make("CartPole-v1"))
        self.seconds, self.asleep = microseconds / 1e6, asleep

    def step(self, action):
        """Waits, and takes a step."""
        end = time.perf_counter() + self.seconds
        if self.asleep:
            time.sleep(self.seconds)
        while time.perf_counter() < end:
            pass
        return self.env.step(action)

    def action_masks(self):
        """All actions are allowed."""
        return np.ones(2, bool)


def main() -> None:
    """Prints the time of a step of all environments."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--microseconds", type=int, default=200)
    parser.add_argument("--asleep", action="store_true", help="steps need no processor")
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--num-envs", type=int, default=64)
    parser.add_argument("--hidden-dim", type=int, default=256)
    options = parser.parse_args()
    runs, found = {}, {False: [], True: []}
    for overlap in found:
        make = partial(Slow, options.microseconds, options.asleep)
        env = GymnasiumEnv(make, num_workers=options.num_workers, overlap=overlap)
        vector = pm.VectorEnv(env, options.num_envs)
        model = pm.MLPActorCritic.for_env(env, hidden_dim=options.hidden_dim, key=jax.random.key(0))
        rolled = eqx.filter_jit(partial(collect, vector, model, num_steps=STEPS))
        runs[overlap] = rolled, start_rollout(vector, model, jax.random.key(1)), env
    for number in range(ROUNDS + 1):
        for overlap, (rolled, state, env) in runs.items():
            began = time.perf_counter()
            state, _ = jax.block_until_ready(rolled(state, jax.random.key(number)))
            if number:  # The first compiles.
                found[overlap].append((time.perf_counter() - began) / STEPS * 1e6)
            runs[overlap] = rolled, state, env
    for _, _, env in runs.values():
        env.close()
    one, other = (min(found[overlap]) for overlap in (False, True))
    print(
        f"{one:.0f} µs a step in turn, {other:.0f} µs overlapped: {one / other:.2f} times as fast"
    )


if __name__ == "__main__":
    main()
