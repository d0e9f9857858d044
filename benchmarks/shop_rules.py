"""Plays jumanji's job shop by rules: each free machine takes a waiting job, chosen by the rule.

    pip install 'ppo-mask[jumanji]'
    python benchmarks/shop_rules.py

For each rule, it prints the mean return of 2,048 episodes: minus the steps of the schedule.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

import ppo_mask as pm
from ppo_mask.adapters.jumanji import JumanjiEnv

EPISODES = 2_048

# How much a rule wants each job, in whole numbers.
RULES: dict[str, Callable[[Any], Array]] = {
    "most operations left": lambda seen: seen.ops_mask.sum(-1),
    "most work left": lambda seen: jnp.where(seen.ops_mask, seen.ops_durations, 0).sum(-1),
    "at random": lambda seen: jnp.zeros(seen.ops_mask.shape[0]),
}


class Rule(pm.AbstractActorCritic):
    """Gives each machine the job that is wanted most of those that it may take, or none.

    Of jobs that are wanted as much, it takes one at random.
    """

    wanted: Callable[[Any], Array] = eqx.field(static=True)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """A rule is never saved."""
        return {}

    def __call__(self, observation: Any, action_mask: Array) -> tuple[Any, Array]:
        """Makes all but the most wanted job impossible, and wants to wait least of all."""
        machines, choices = observation.action_mask.shape
        each = jnp.append(self.wanted(observation), -1)
        logits = jnp.tile(1_000.0 * each, machines)
        return pm.MaskedMultiCategorical(logits, action_mask, (choices,) * machines), jnp.float32(0)


def main() -> None:
    """Plays with each rule."""
    env, key = JumanjiEnv("JobShop-v0"), jax.random.key(0)
    for name, wanted in RULES.items():
        found = pm.evaluate(Rule(wanted), env, key, EPISODES, greedy=False)
        print(f"{found.mean_return:.1f}  {name}")


if __name__ == "__main__":
    main()
