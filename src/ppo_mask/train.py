"""The training loop: compiled chunks of updates, and a plain Python loop around them."""

import signal
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ppo_mask import ppo
from ppo_mask._types import ArrayTree
from ppo_mask.callbacks import Callback, LogRecord, Progress, Run
from ppo_mask.curriculum import Curriculum, env_at
from ppo_mask.env import AbstractEnv
from ppo_mask.health import Health, describe, examine, healthy
from ppo_mask.metrics import Metric, add_update, no_updates, summarize
from ppo_mask.nan_search import find_first_nan
from ppo_mask.ppo import PPOConfig
from ppo_mask.state import TrainState, copied, init
from ppo_mask.vector import VectorEnv

__all__ = [
    "Callback",
    "Health",
    "LogRecord",
    "Progress",
    "Run",
    "TrainState",
    "TrainingError",
    "init",
    "run_updates",
    "train",
]

# A chunk of updates lasts about this long: short enough for a live progress bar and for Ctrl+C,
# long enough for the time between chunks not to matter.
_CHUNK_SECONDS = 1.0
_POLL_SECONDS = 0.002


class TrainingError(RuntimeError):
    """A run that cannot go on; the message says at which update and why."""


def train(
    env: AbstractEnv[Any],
    state: TrainState,
    config: PPOConfig,
    total_updates: int,
    *,
    metrics: Mapping[str, Metric] | None = None,
    curriculum: Curriculum | None = None,
    callbacks: Sequence[Callback] = (),
    log_interval: int = 10,
    debug_nans: bool = False,
) -> TrainState:
    """Trains until ``total_updates`` updates are done, counted from the run's very beginning.

    How the run is cut into chunks, and stopping and going on, change no result. Ctrl+C and SIGTERM
    end the run in good order after the running chunk; a second Ctrl+C raises KeyboardInterrupt.

    Args:
        env: the environment; ``config.num_envs`` of it run side by side.
        state: from :func:`init`, or from a checkpoint. It stays usable.
        config: hyperparameters.
        total_updates: when to end, and where an annealed learning rate reaches 0.
        metrics: figures of your own by name, logged beside the library's.
        curriculum: what the environment is at each update.
        callbacks: called in this order.
        log_interval: updates between log lines; there is one more at the very end.
        debug_nans: keep a copy of the state and look after each update, so that the error can also
            say in which line of code the first NaN came about.

    Raises:
        TrainingError: an observation, reward, loss or parameter is not finite, or a mask allowed
            no action. The callbacks have not seen the bad state.
    """
    if log_interval < 1:
        raise ValueError(f"log_interval must be at least 1, got {log_interval}")
    metrics = dict(metrics or {})
    unlogged = int(state.totals.updates)
    run = Run(config, int(state.update), total_updates, callbacks, unlogged)
    # The chunks use up their input's buffers; the caller's state, and the model in it, are spared.
    state = copied(state)

    def advance(state: TrainState, n: int) -> tuple[TrainState, float]:
        before = copied(state) if debug_nans else None
        started = time.perf_counter()
        total = jnp.asarray(total_updates)
        fixed = (env, config, metrics, curriculum, jnp.asarray(n), total)
        state, health = run_chunk(fixed, state)
        _wait(health)
        if wrong := describe(health):
            wrong = f"update {int(state.update)}: {wrong}"
            if before is not None:
                env_then = env_at(env, curriculum, before.update, total)
                place = find_first_nan(env_then, config, before.learner, total)
                wrong += f"; {place}" if place else ""
            raise TrainingError(wrong)
        return state, time.perf_counter() - started

    with _closing(callbacks), _signals_stop(run):
        state, _ = advance(state, 0)  # Compiles, and does nothing else.
        for callback in callbacks:
            callback.on_start(run, state)
        pace, unlogged_steps, unlogged_seconds = 1, 0, 0.0
        while run.update < total_updates and run.stop_reason is None:
            log_at = min(total_updates, (run.update // log_interval + 1) * log_interval)
            wishes = [callback.next_update(run.update) for callback in callbacks]
            until = min([log_at, *(wish for wish in wishes if wish and wish > run.update)])
            n = 1 if debug_nans else min(pace, until - run.update)

            state, seconds = advance(state, n)

            run.update += n
            pace = max(1, min(2 * pace, round(_CHUNK_SECONDS * n / seconds)))
            unlogged_steps += n * config.batch_size
            unlogged_seconds += seconds
            if run.update == log_at:
                speed = {"train/steps_per_second": unlogged_steps / unlogged_seconds}
                partial = run.update % log_interval != 0  # The line at the very end may be.
                run.log(summarize(state.totals, metrics) | speed, partial)
                unlogged_steps, unlogged_seconds = 0, 0.0
                if not partial:
                    state = eqx.tree_at(lambda s: s.totals, state, no_updates(metrics))
            progress = Progress(
                run.update,
                total_updates,
                run.update * config.batch_size,
                n * config.batch_size / seconds,
            )
            for callback in callbacks:
                callback.on_chunk(run, state, progress)
        for callback in callbacks:
            callback.on_stop(run, state, run.stop_reason or "finished")
    return state


def run_updates(
    env: AbstractEnv[Any],
    config: PPOConfig,
    metrics: Mapping[str, Metric],
    n: Int[Array, ""],
    total_updates: Int[Array, ""],
    state: TrainState,
    curriculum: Curriculum | None = None,
) -> tuple[TrainState, Health]:
    """Runs ``n`` updates: pure, to be compiled or vmapped (over seeds, say). Stops when ill."""
    arrays, static = eqx.partition(state, eqx.is_array)
    until = state.update + n

    def going_on(carry: tuple[ArrayTree, Health]) -> Bool[Array, ""]:
        arrays, health = carry
        return (arrays.update < until) & health.good

    def update(carry: tuple[ArrayTree, Health]) -> tuple[ArrayTree, Health]:
        state: TrainState = eqx.combine(carry[0], static)
        env_now = env_at(env, curriculum, state.update, total_updates)
        learner, transitions, diagnostics = ppo.update(
            VectorEnv(env_now, config.num_envs), config, state.learner, total_updates
        )
        totals = add_update(state.totals, metrics, transitions, diagnostics)
        health = examine(learner, transitions, diagnostics)
        return eqx.filter(TrainState(learner, totals), eqx.is_array), health

    arrays, health = jax.lax.while_loop(going_on, update, (arrays, healthy(state.model)))
    return eqx.combine(arrays, static), health


Fixed = tuple[AbstractEnv[Any], PPOConfig, dict[str, Metric], Curriculum | None, Array, Array]
"""What chunks of updates have in common: environment, config, metrics, curriculum; how many updates
to run, and how many the whole run has."""


@eqx.filter_jit(donate="all-except-first")
def run_chunk(fixed: Fixed, state: TrainState) -> tuple[TrainState, Health]:
    """:func:`run_updates` as :func:`train` compiles it: the state's buffers are used again."""
    env, config, metrics, curriculum, n, total_updates = fixed
    return run_updates(env, config, metrics, n, total_updates, state, curriculum)


def _wait(health: Health) -> None:
    # Python handles signals only between its own instructions, so wait in Python.
    while not health.allowed.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_SECONDS)


@contextmanager
def _closing(callbacks: Sequence[Callback]) -> Generator[None]:
    try:
        yield
    finally:
        for callback in callbacks:
            callback.close()


@contextmanager
def _signals_stop(run: Run) -> Generator[None]:
    """Ctrl+C and SIGTERM ask for a stop; a second Ctrl+C interrupts. For the main thread only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def ask(number: int, _: FrameType | None) -> None:
        run.request_stop(signal.Signals(number).name)
        signal.signal(signal.SIGINT, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
