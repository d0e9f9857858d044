"""Plays jumanji's job shop by rules: each free machine takes a waiting job, chosen by the rule.

    pip install 'ppo-mask[jumanji]'
    python benchmarks/shop_rules.py

For each rule, it prints the mean return of 2,048 episodes: minus the steps of the schedule.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import jumanji
from jaxtyping import Array

EPISODES, STEPS = 2_048, 200
_ENV = jumanji.make("JobShop-v0")


# How much a rule wants each job: (key, observation) -> one number for each job.
RULES: dict[str, Callable[[Array, Any], Array]] = {
    "most operations left": lambda _, seen: seen.ops_mask.sum(-1),
    "most work left": lambda _, seen: jnp.where(seen.ops_mask, seen.ops_durations, 0).sum(-1),
    "at random": lambda key, seen: jax.random.uniform(key, seen.ops_mask.shape[:1]),
}


def choose(wanted: Array, seen: Any) -> Array:
    """Gives each machine the job that is wanted most of those that it may take, or none."""
    may_take = seen.action_mask[:, :-1]
    best = jnp.where(may_take, wanted, -1).argmax(-1)
    return jnp.where(may_take.any(-1), best, may_take.shape[1])


def play(rule: Callable[[Array, Any], Array], key: Array) -> tuple[Array, Array]:
    """Plays one episode; returns its return, and whether it ended within ``STEPS``."""

    def step(carry: Any, key: Array) -> tuple[Any, Array]:
        state, now, over = carry
        seen = now.observation
        state, then = _ENV.step(state, choose(rule(key, seen), seen))
        return (state, then, over | then.last()), jnp.where(over, 0, then.reward)

    reset_key, step_key = jax.random.split(key)
    carry = (*_ENV.reset(reset_key), jnp.bool_(False))
    (_, _, over), rewards = jax.lax.scan(step, carry, jax.random.split(step_key, STEPS))
    return rewards.sum(), over


def main() -> None:
    """Plays with each rule."""
    keys = jax.random.split(jax.random.PRNGKey(0), EPISODES)
    for name, rule in RULES.items():
        returns, over = jax.jit(jax.vmap(partial(play, rule)))(keys)
        if not over.all():
            raise SystemExit(f"an episode lasted more than {STEPS} steps")
        print(f"{returns.mean():.1f}  {name}")


if __name__ == "__main__":
    main()
