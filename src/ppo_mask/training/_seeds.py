"""Trains several seeds together in one compiled program.

A small network leaves an accelerator mostly idle, so a few runs together cost hardly more than one
run. Only several seeds show how well an algorithm solves a problem.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, SupportsIndex, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ppo_mask.envs import host_env_in
from ppo_mask.errors import RunError
from ppo_mask.networks import ModelLike
from ppo_mask.training._callback import Callback, History, Progress, Run
from ppo_mask.training._health import describe_health
from ppo_mask.training._loop import closing, run_loop
from ppo_mask.training._metrics import emptied, summarize
from ppo_mask.training._state import TrainState, copy_state, replace_totals
from ppo_mask.training._trainer import Trainer, TrainingError, wait_for


def init_seeds(
    trainer: Trainer, make_model: Callable[[Array], ModelLike], keys: Key[Array, " seeds"]
) -> TrainState:
    """Makes the first states of several runs, stacked: arrays have a leading axis ``seeds``.

    The run of each ``key`` begins with ``trainer.init(make_model(model_key), init_key)``, where
    ``model_key, init_key = jax.random.split(key)``.

    Args:
        trainer: the trainer of all seeds.
        make_model: makes a model, or a network, from a key.
        keys: a key for each run.

    Raises:
        RunError: the environment is in Python, so a program can train only one seed.
    """
    if host_env_in(trainer.env) is not None:
        raise RunError(
            "an environment that lives in Python trains one seed in a program: num_seeds must be "
            "1; start a run for each seed"
        )

    def begin(key: Key[Array, ""]) -> TrainState:
        model_key, init_key = jax.random.split(key)
        return trainer.init(make_model(model_key), init_key)

    return eqx.filter_jit(eqx.filter_vmap(begin))(keys)


def train_seeds(
    trainer: Trainer,
    states: TrainState,
    total_timesteps: SupportsIndex,
    *,
    callbacks: Sequence[Sequence[Callback]] = (),
    of_all: Sequence[Callback] = (),
    log_interval: SupportsIndex = 10,
) -> tuple[TrainState, list[History]]:
    """Trains all seeds until each has taken ``total_timesteps`` steps.

    Each seed's final state is the same as if the seed had been trained alone, except for float
    rounding: batched and unbatched matrix products sum in different orders.

    Args:
        trainer: the trainer of all seeds, for one device.
        states: from :func:`init_seeds` or an earlier call. The states stay usable after the call.
        total_timesteps: environment steps of each seed's run, as in :meth:`Trainer.train`.
        callbacks: for each seed, callbacks that see this seed's run alone.
        of_all: callbacks that see all seeds at once. These callbacks get the stacked state, the
            mean of each metric over the seeds that log the metric, and ``seeds/return_std``, the
            population standard deviation of ``train/mean_episode_return`` over the seeds.
        log_interval: updates between log lines; the end of the run adds a line.

    Returns:
        The states, and each seed's log lines. :func:`select_seed` selects a seed's state.

    Raises:
        ValueError: a number is out of range, or there is not one list of callbacks for each seed.
        RunError: a run has more updates, or a log line more steps, than an int32 can count.
        TrainingError: a seed cannot continue; the message names the seed.
    """
    algorithm = trainer.algorithm
    total_updates = algorithm.total_updates(total_timesteps)
    num_seeds, begun = len(states.update), int(states.update[0])
    if callbacks and len(callbacks) != num_seeds:
        raise ValueError(f"callbacks has {len(callbacks)} lists, and there are {num_seeds} seeds")
    unlogged = states.totals.updates
    histories = [History() for _ in range(num_seeds)]
    mine = [list(callbacks[seed]) if callbacks else [] for seed in range(num_seeds)]
    run = Run(algorithm, begun, total_updates, of_all, unlogged)
    of_seed = [
        _OfSeed(seed, Run(algorithm, begun, total_updates, [history, *own], unlogged, run), own)
        for seed, (history, own) in enumerate(zip(histories, mine, strict=True))
    ]

    compiled_for = trainer.with_values()

    def advance(states: TrainState, n: int) -> TrainState:
        fixed = compiled_for, jnp.int32(n), jnp.float32(total_updates)
        states, health = _run_chunk(fixed, states)
        wait_for(health)
        health = jax.device_get(health)
        parts = [x.reshape(num_seeds, -1).all(axis=1) for x in jax.tree.leaves(health)]
        good = np.logical_and.reduce(parts)
        if not good.all():
            seed = int(good.argmin())
            state = select_seed(states, seed)
            wrong = describe_health(select_seed(health, seed), state, trainer.env.num_actions)
            raise TrainingError(f"seed number {seed}, update {int(state.update)}: {wrong}")
        return states

    def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
        totals = jax.device_get(state.totals)
        lines = [summarize(select_seed(totals, seed)) for seed in range(num_seeds)]
        for each, line in zip(of_seed, lines, strict=True):
            each.run.update = run.update
            each.run.log(line | {"train/steps_per_second": steps_per_second}, partial)
        run.log(_means(lines) | {"train/steps_per_second": num_seeds * steps_per_second}, partial)
        return state if partial else replace_totals(state, emptied(state.totals), None)

    on_run = [*of_seed, *of_all]
    states = run_loop(run, copy_state(states), on_run, int(log_interval), advance, log)
    return states, histories


@final
class _OfSeed(Callback):
    """Calls callbacks for one seed, as if this seed were a separate run."""

    def __init__(self, seed: int, run: Run, callbacks: Sequence[Callback]) -> None:
        self._seed = seed
        self.run = run
        self._callbacks = callbacks

    def next_update(self, update: int) -> int | None:
        wishes = [callback.next_update(update) for callback in self._callbacks]
        return min((wish for wish in wishes if wish and wish > update), default=None)

    def on_start(self, run: Run, state: TrainState) -> None:
        for callback in self._callbacks:
            callback.on_start(self.run, select_seed(state, self._seed))

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        self.run.update = run.update
        for callback in self._callbacks:
            callback.on_chunk(self.run, select_seed(state, self._seed), progress)

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        for callback in self._callbacks:
            callback.on_stop(self.run, select_seed(state, self._seed), reason)

    def close(self) -> None:
        with closing(self._callbacks):
            pass


def _means(lines: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Averages each metric over the seeds that log the metric."""
    names = dict.fromkeys(name for line in lines for name in line)
    values = {name: [line[name] for line in lines if name in line] for name in names}
    means = {name: float(np.mean(of_seeds)) for name, of_seeds in values.items()}
    if returns := values.get("train/mean_episode_return"):
        means["seeds/return_std"] = float(np.std(returns))
    return means


def select_seed(states: Any, seed: int) -> Any:
    """Selects one seed from a tree whose arrays have a leading axis ``seeds``.

    Raises:
        IndexError: there is no such seed.
    """

    def select(x: Any) -> Any:
        if not isinstance(x, jax.Array | np.ndarray):
            return x
        if not -len(x) <= seed < len(x):  # JAX would take the nearest one.
            raise IndexError(f"there are {len(x)} seeds, numbered from 0, and no seed {seed}")
        return x[seed]

    return jax.tree.map(select, states)


@eqx.filter_jit(donate="all-except-first")
def _run_chunk(fixed: tuple[Trainer, Array, Array], states: TrainState) -> tuple[TrainState, Any]:
    trainer, n, total_updates = fixed
    return eqx.filter_vmap(lambda state: trainer.run_updates(state, n, total_updates))(states)
