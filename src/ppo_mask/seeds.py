"""Several runs side by side in one compiled program: one for each seed.

A small network leaves an accelerator idle; a few of them together cost hardly more than one, and
what PPO makes of a problem is only told by several seeds.
"""

from collections.abc import Callable, Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ppo_mask.callbacks import LogRecord
from ppo_mask.config import PPOConfig
from ppo_mask.curriculum import Curriculum
from ppo_mask.env import AbstractEnv
from ppo_mask.health import Health, describe
from ppo_mask.metrics import Metric, no_updates, summarize
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.state import TrainState, copied, init
from ppo_mask.train import Setup, TrainingError, run_updates


def init_seeds(
    env: AbstractEnv[Any],
    make_model: Callable[[Array], AbstractActorCritic],
    config: PPOConfig,
    keys: Key[Array, " seeds"],
    *,
    metrics: Mapping[str, Metric] | None = None,
    curriculum: Curriculum | None = None,
) -> TrainState:
    """The beginnings of several runs: a train state whose arrays have a leading axis ``seeds``.

    That of ``key`` is ``init(env, make_model(model_key), config, init_key)`` with ``model_key,
    init_key = jax.random.split(key)``.

    Args:
        env: the environment.
        make_model: a network from a key.
        config: hyperparameters, the same for all.
        keys: one per run.
        metrics: those that :func:`train_seeds` will be given.
        curriculum: likewise.
    """

    def begin(key: Key[Array, ""]) -> TrainState:
        model_key, init_key = jax.random.split(key)
        model = make_model(model_key)
        return init(env, model, config, init_key, metrics=metrics, curriculum=curriculum)

    return eqx.filter_jit(eqx.filter_vmap(begin))(keys)


def train_seeds(
    env: AbstractEnv[Any],
    states: TrainState,
    config: PPOConfig,
    total_updates: int,
    *,
    metrics: Mapping[str, Metric] | None = None,
    curriculum: Curriculum | None = None,
    log_interval: int = 10,
) -> tuple[TrainState, list[list[LogRecord]]]:
    """Trains all seeds until ``total_updates`` updates are done, as :func:`ppo_mask.train.train`.

    Each seed comes out as if it had been trained alone, but for float rounding: a batch of matrix
    products adds up in another order than one of them.

    Args:
        env: the environment.
        states: from :func:`init_seeds`, or what an earlier call returned. It stays usable.
        config: hyperparameters, the same for all.
        total_updates: when to end, and where an annealed learning rate reaches 0.
        metrics: figures of your own by name.
        curriculum: what the environment is at each update.
        log_interval: updates between log lines; there is one more at the very end.

    Returns:
        The states, and for each seed its log lines. :func:`pick` takes one state out.

    Raises:
        TrainingError: a seed cannot go on. The message names it.
    """
    if log_interval < 1:
        raise ValueError(f"log_interval must be at least 1, got {log_interval}")
    metrics = dict(metrics or {})
    states = copied(states)
    done, num_seeds = int(states.update[0]), len(states.update)
    logs: list[list[LogRecord]] = [[] for _ in range(num_seeds)]
    while done < total_updates:
        until = min(total_updates, (done // log_interval + 1) * log_interval)
        n, total = jnp.asarray(until - done), jnp.asarray(total_updates)
        setup = Setup(env, config, metrics, curriculum)
        states, health = _run_chunk((setup, n, total), states)
        _raise_if_ill(health, states)
        done = until
        totals = jax.device_get(states.totals)
        for seed, log in enumerate(logs):
            values = summarize(pick(totals, seed), metrics)
            log.append(LogRecord(done, done * config.batch_size, values))
        if done % log_interval == 0:
            empty = jax.tree.map(
                lambda x: jnp.broadcast_to(x, (num_seeds, *x.shape)), no_updates(metrics)
            )
            states = eqx.tree_at(lambda s: s.totals, states, empty)
    return states, logs


def pick(states: Any, seed: int) -> Any:
    """One seed's part of a tree whose arrays have a leading axis ``seeds``."""
    return jax.tree.map(lambda x: x[seed] if eqx.is_array_like(x) else x, states)


@eqx.filter_jit(donate="all-except-first")
def _run_chunk(fixed: tuple[Setup, Array, Array], states: TrainState) -> tuple[TrainState, Any]:
    return eqx.filter_vmap(lambda state: run_updates(*fixed, state))(states)


def _raise_if_ill(health: Health, states: TrainState) -> None:
    for seed in range(len(states.update)):
        if wrong := describe(pick(health, seed)):
            raise TrainingError(f"seed number {seed}, update {int(states.update[seed])}: {wrong}")
