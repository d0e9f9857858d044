"""Sweeps over two hyperparameters, with several seeds for each pair, in one compiled program.

    python examples/sweep.py

The floats of ``PPO`` may be JAX arrays, and ``Trainer.init`` and ``Trainer.run_updates`` are
pure. So ``jax.vmap`` trains one agent for each row of the table, with one compilation. Settings
that determine shapes (``num_envs``, ``num_steps``, ``num_minibatches``, ``update_epochs``, the
sizes of a network) need a compilation for each value.
"""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Key

import ppo_mask as pm
from ppo_mask.envs.probes import MaskedLocks

LEARNING_RATES = (1e-3, 3e-3, 1e-2)
ENT_COEFS = (0.0, 0.03)
SEEDS = 3
UPDATES = 30

env = MaskedLocks()


@eqx.filter_jit
@eqx.filter_vmap
def train(
    learning_rate: Float[Array, ""], ent_coef: Float[Array, ""], key: Key[Array, ""]
) -> tuple[pm.Model, Bool[Array, ""]]:
    """Trains one agent with these hyperparameters."""
    config = pm.PPO(num_envs=8, num_steps=32, learning_rate=learning_rate, ent_coef=ent_coef)
    trainer = pm.Trainer(env, config)
    model_key, key = jax.random.split(key)
    model = pm.network_for(env, "mlp", key=model_key, hidden_dim=32)
    state = trainer.init(model, key)
    state, health = trainer.run_updates(state, jnp.int32(UPDATES), jnp.int32(UPDATES))
    return state.model, health.good


def main() -> None:
    """Trains all agents, evaluates each, and prints a line for each pair of hyperparameters."""
    rows = list(itertools.product(LEARNING_RATES, ENT_COEFS, range(SEEDS)))
    learning_rates, ent_coefs, seeds = map(jnp.array, zip(*rows, strict=True))
    models, good = train(learning_rates, ent_coefs, jax.vmap(jax.random.key)(seeds))
    returns: list[float] = []
    for row in range(len(rows)):
        model = pm.training.select_seed(models, row)
        returns.append(pm.evaluate(model, env, jax.random.key(100), 32).mean_return)
    table = np.array(returns).reshape(len(LEARNING_RATES), len(ENT_COEFS), SEEDS)
    print(f"{len(rows)} agents, {int(good.sum())} of them with finite numbers throughout")
    for (i, lr), (j, ent_coef) in itertools.product(
        enumerate(LEARNING_RATES), enumerate(ENT_COEFS)
    ):
        mean, least = table[i, j].mean(), table[i, j].min()
        print(f"lr {lr:g}, ent_coef {ent_coef:g}: return {mean:.2f}, worst seed {least:.2f}")


if __name__ == "__main__":
    main()
