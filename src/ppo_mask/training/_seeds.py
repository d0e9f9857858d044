"""Several runs side by side in one compiled program: one for each seed.

A small network leaves an accelerator idle; a few of them together cost hardly more than one, and
what PPO makes of a problem is only told by several seeds.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ppo_mask.envs import AbstractEnv, Curriculum
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training._callback import Callback, LogRecord, Progress, Run
from ppo_mask.training._health import Health, describe
from ppo_mask.training._loop import drive
from ppo_mask.training._metrics import Metric, no_updates, summarize
from ppo_mask.training._state import TrainState, copied, init
from ppo_mask.training._train import Setup, TrainingError, run_updates, wait


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
    callbacks: Sequence[Sequence[Callback]] = (),
    of_all: Sequence[Callback] = (),
    log_interval: int = 10,
) -> tuple[TrainState, list[list[LogRecord]]]:
    """Trains all seeds until ``total_updates`` updates are done, as :func:`train` does.

    Each seed comes out as if it had been trained alone, but for float rounding: a batch of matrix
    products adds up in another order than one of them.

    Args:
        env: the environment.
        states: from :func:`init_seeds`, or what an earlier call returned. It stays usable.
        config: hyperparameters, the same for all.
        total_updates: when to end, and where an annealed learning rate reaches 0.
        metrics: figures of your own by name.
        curriculum: what the environment is at each update.
        callbacks: for each seed those that look at it, as they would at a run of its own.
        of_all: these are told the seeds' means, and ``seeds/return_std``, the population standard
            deviation of ``train/mean_episode_return`` over the seeds; their state is that of all.
        log_interval: updates between log lines; there is one more at the very end.

    Returns:
        The states, and for each seed its log lines. :func:`pick` takes one state out.

    Raises:
        ValueError: a number that cannot work.
        TrainingError: a seed cannot go on. The message names it.
    """
    setup = Setup(env, config, dict(metrics or {}), curriculum)
    num_seeds, begun = len(states.update), int(states.update[0])
    unlogged = int(states.totals.updates[0])
    recorders = [_Recorder() for _ in range(num_seeds)]
    mine = [list(callbacks[seed]) if callbacks else [] for seed in range(num_seeds)]
    of_seed = [
        _OfSeed(
            seed, Run(config, begun, total_updates, [recorder, *mine[seed]], unlogged), mine[seed]
        )
        for seed, recorder in enumerate(recorders)
    ]
    run = Run(config, begun, total_updates, of_all, unlogged)

    def advance(states: TrainState, n: int) -> TrainState:
        fixed = setup, jnp.asarray(n), jnp.asarray(total_updates)
        states, health = _run_chunk(fixed, states)
        wait(health)
        _raise_if_ill(health, states)
        return states

    def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
        totals = jax.device_get(state.totals)
        lines = [summarize(pick(totals, seed), setup.metrics) for seed in range(num_seeds)]
        for each, line in zip(of_seed, lines, strict=True):
            each.run.update = run.update
            each.run.log(line | {"train/steps_per_second": steps_per_second}, partial)
        run.log(_means(lines) | {"train/steps_per_second": num_seeds * steps_per_second}, partial)
        if partial:
            return state
        empty = jax.tree.map(
            lambda x: jnp.broadcast_to(x, (num_seeds, *x.shape)), no_updates(setup.metrics)
        )
        return eqx.tree_at(lambda s: s.totals, state, empty)

    states = drive(run, copied(states), [*of_seed, *of_all], log_interval, advance, log)
    return states, [recorder.records for recorder in recorders]


@final
class _Recorder(Callback):
    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def on_log(self, run: Run, record: LogRecord) -> None:
        self.records.append(record)


@final
class _OfSeed(Callback):
    """Shows callbacks one seed as if it were alone."""

    def __init__(self, seed: int, run: Run, callbacks: Sequence[Callback]) -> None:
        self._seed = seed
        self.run = run
        self._callbacks = callbacks

    def next_update(self, update: int) -> int | None:
        wishes = [callback.next_update(update) for callback in self._callbacks]
        return min((wish for wish in wishes if wish and wish > update), default=None)

    def on_start(self, run: Run, state: TrainState) -> None:
        for callback in self._callbacks:
            callback.on_start(self.run, pick(state, self._seed))

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        self.run.update = run.update
        for callback in self._callbacks:
            callback.on_chunk(self.run, pick(state, self._seed), progress)
        if self.run.stop_reason is not None:
            run.request_stop(self.run.stop_reason)

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        for callback in self._callbacks:
            callback.on_stop(self.run, pick(state, self._seed), reason)

    def close(self) -> None:
        for callback in self._callbacks:
            callback.close()


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure, over the seeds that have it."""
    values = {name: [line[name] for line in lines if name in line] for name in lines[0]}
    means = {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()}
    if returns := values.get("train/mean_episode_return"):
        means["seeds/return_std"] = float(np.std(returns))
    return means


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
