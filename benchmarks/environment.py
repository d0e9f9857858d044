"""HackMatrix steps per second: random valid actions, masks, observations and auto-reset included.

python benchmarks/environment.py [NUM_ENVS]
"""

import sys
import time

import jax
import jax.numpy as jnp
from jaxtyping import Array

from hackmatrix import HackMatrix
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.vector import VectorEnv, VectorState

STEPS, RUNS = 64, 7


def main(num_envs: int) -> None:
    """Prints compile times and the median and range of several runs."""
    env = VectorEnv(HackMatrix(), num_envs)

    def random_action(key: Array, mask: Array) -> Array:
        return MaskedCategorical(jnp.zeros(mask.shape), mask).sample(key)

    def play(
        key: Array, state: VectorState, mask: Array
    ) -> tuple[tuple[Array, VectorState, Array], Array]:
        def step(carry: tuple[Array, VectorState, Array], _: None) -> tuple[tuple, Array]:
            key, state, mask = carry
            key, action_key, step_key = jax.random.split(key, 3)
            actions = jax.vmap(random_action)(jax.random.split(action_key, num_envs), mask)
            state, timestep = env.step(step_key, state, actions)
            # The sum keeps the compiler from leaving the observation out.
            return (key, state, timestep.action_mask), timestep.observation.sum()

        return jax.lax.scan(step, (key, state, mask), None, length=STEPS)

    def seconds(name: str, function, *args):
        started = time.perf_counter()
        compiled = jax.jit(function).lower(*args).compile()
        print(f"{name}: traced and compiled in {time.perf_counter() - started:.1f} s")
        return compiled

    key = jax.random.key(0)
    state, timestep = seconds("reset", env.reset, key)(key)
    carry = (key, state, timestep.action_mask)
    run = seconds("step", play, *carry)
    speeds: list[float] = []
    for _ in range(RUNS):
        started = time.perf_counter()
        carry, _ = jax.block_until_ready(run(*carry))
        speeds.append(num_envs * STEPS / (time.perf_counter() - started))
    speeds.sort()
    print(
        f"{num_envs} environments on {jax.devices()[0].device_kind}: {speeds[RUNS // 2]:,.0f} "
        f"steps/s (median of {RUNS}; {speeds[0]:,.0f} to {speeds[-1]:,.0f})"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2048)
