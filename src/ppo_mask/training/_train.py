"""The training loop: compiled chunks of updates, and a plain Python loop around them."""

import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Int

from ppo_mask.devices.processes import several
from ppo_mask.devices.sharding import everywhere
from ppo_mask.envs import AbstractEnv, Curriculum, VectorEnv, env_at
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.ppo import PPOConfig, check_devices, of_rows
from ppo_mask.ppo import update as ppo_update
from ppo_mask.training._callback import Callback, LogRecord, Progress, Run
from ppo_mask.training._debug_nans import find_first_nan
from ppo_mask.training._health import Health, describe, examine, healthy
from ppo_mask.training._loop import drive
from ppo_mask.training._metrics import Metric, add_update, no_updates, summarize
from ppo_mask.training._state import TrainState, constrained, copied, init, placed

__all__ = [
    "Callback",
    "Health",
    "LogRecord",
    "Progress",
    "Run",
    "Setup",
    "TrainState",
    "TrainingError",
    "init",
    "run_updates",
    "train",
]

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
    mesh: Mesh | None = None,
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
        mesh: of the devices to train on, from :func:`~ppo_mask.devices.sharding.make_mesh`; None
            for one device.

    Raises:
        ValueError: a number that cannot work.
        TrainingError: an observation, reward, loss or parameter is not finite, or a mask allowed
            no action. The callbacks have not seen the bad state.
    """
    check_devices(of_rows(config, state.model), 1 if mesh is None else mesh.size)
    setup = Setup(env, config, dict(metrics or {}), curriculum, mesh)
    unlogged = int(state.totals.updates)
    run = Run(config, int(state.update), total_updates, callbacks, unlogged)
    # The chunks use up their input's buffers; the caller's state, and the model in it, are spared.
    state = copied(placed(state, mesh))

    def advance(state: TrainState, n: int) -> TrainState:
        before = copied(state) if debug_nans else None
        total = jnp.asarray(total_updates)
        with _telling_of_lost_processes():
            state, health = run_chunk((setup, jnp.asarray(n), total), state)
            wait(health)
            wrong = describe(health)
        if wrong:
            wrong = f"update {int(state.update)}: {wrong}"
            if before is not None:
                env_then = env_at(env, curriculum, before.update, total)
                place = find_first_nan(env_then, config, before.learner, total)
                wrong += f"; {place}" if place else ""
            raise TrainingError(wrong)
        return state

    def log(state: TrainState, steps_per_second: float, partial: bool) -> TrainState:
        speed = {"train/steps_per_second": steps_per_second}
        run.log(summarize(state.totals, setup.metrics) | speed, partial)
        if partial:
            return state
        empty = everywhere(no_updates(setup.metrics), mesh)
        return eqx.tree_at(lambda s: s.totals, state, empty)

    # To find a NaN, one update at a time.
    return drive(run, state, callbacks, log_interval, advance, log, 1 if debug_nans else None)


class Setup(eqx.Module):
    """What does not change as a run goes on.

    Attributes:
        env: the environment.
        config: hyperparameters.
        metrics: figures to gather.
        curriculum: what the environment is at each update.
        mesh: of the devices, if there are several.
    """

    env: AbstractEnv[Any]
    config: PPOConfig
    metrics: dict[str, Metric]
    curriculum: Curriculum | None = None
    mesh: Mesh | None = eqx.field(static=True, default=None)


def run_updates(
    setup: Setup, n: Int[Array, ""], total_updates: Int[Array, ""], state: TrainState
) -> tuple[TrainState, Health]:
    """Runs ``n`` updates: pure, to be compiled or vmapped (over seeds, say). Stops when ill.

    Args:
        setup: of the run.
        n: how many.
        total_updates: of the whole run.
        state: where it stands.
    """
    config, mesh = setup.config, setup.mesh
    arrays, static = eqx.partition(state, eqx.is_array)
    until = state.update + n

    def going_on(carry: tuple[ArrayTree, Health]) -> Bool[Array, ""]:
        arrays, health = carry
        return (arrays.update < until) & health.good

    def update(carry: tuple[ArrayTree, Health]) -> tuple[ArrayTree, Health]:
        state: TrainState = eqx.combine(carry[0], static)
        env = env_at(setup.env, setup.curriculum, state.update, total_updates)
        learner, transitions, diagnostics = ppo_update(
            VectorEnv(env, config.num_envs), config, state.learner, total_updates, mesh
        )
        totals = add_update(state.totals, setup.metrics, transitions, diagnostics)
        health = examine(learner, transitions, diagnostics)
        state = constrained(TrainState(learner, totals), mesh)
        return eqx.filter(state, eqx.is_array), health

    arrays, health = jax.lax.while_loop(going_on, update, (arrays, healthy(state.model)))
    return eqx.combine(arrays, static), health


@eqx.filter_jit(donate="all-except-first")
def run_chunk(
    fixed: tuple[Setup, Int[Array, ""], Int[Array, ""]], state: TrainState
) -> tuple[TrainState, Health]:
    """:func:`run_updates` as :func:`train` compiles it: the state's buffers are used again."""
    return run_updates(*fixed, state)


def wait(health: Health) -> None:
    """Returns when a chunk is done."""
    # Python handles signals only between its own instructions, so wait in Python.
    while not health.allowed.is_ready():  # pyright: ignore[reportAttributeAccessIssue]
        time.sleep(_POLL_SECONDS)


@contextmanager
def _telling_of_lost_processes() -> Generator[None]:
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not several():
            raise
        reason = str(error).partition("\n")[0]
        raise TrainingError(
            f"another process of this run is gone or out of reach ({reason}); end all of them and "
            "start them again with --resume"
        ) from error
