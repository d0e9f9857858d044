"""Finds the number of environments with the most steps per second, by measurement."""

import os
import time
from collections.abc import Callable, Iterable
from typing import Any, cast

import jax
import jax.numpy as jnp

from ppo_mask.devices.containers import free_memory
from ppo_mask.training import Trainer, TrainState
from ppo_mask.training._state import place_state
from ppo_mask.training._trainer import run_chunk

SIZES = tuple(2**k for k in range(6, 16))
# More environments mean shorter rollouts or fewer updates, so they must be this much faster.
_WORTH_IT = 1.1
_MEMORY_SHARE = 0.8
_MEASURE_SECONDS = 1.0


def fastest(
    trainers: Iterable[Trainer],
    begin: Callable[[Trainer], TrainState],
    report: Callable[[str], None] = print,
    memory: int | None = None,
) -> Trainer:
    """Finds the trainer with the most environment steps per second, over whole updates.

    The search ends at the first trainer that does not fit into memory, or that is less than a tenth
    faster than the best trainer so far.

    Args:
        trainers: trainers in order of the number of environments; the first is assumed to fit.
        begin: makes the first state of a run.
        report: called with a line for each trainer.
        memory: the bytes on a device that a run may use; None for most of its memory.
    """
    memory = _memory() if memory is None else memory
    best, most = None, 0.0
    for trainer in trainers:
        speed = _steps_per_second(trainer, begin(trainer), memory)
        said = "does not fit into memory" if speed is None else f"{speed:,.0f} steps/s"
        report(f"auto-tune: {trainer.algorithm.num_envs:,} environments: {said}")
        if best is not None and (speed is None or speed < _WORTH_IT * most):
            break
        best, most = trainer, speed or 0.0
    assert best is not None
    return best


def _steps_per_second(trainer: Trainer, state: TrainState, memory: int) -> float | None:
    fixed = (trainer.with_values(), jnp.int32(1), jnp.float32(1_000_000))
    try:
        state = place_state(state, trainer.mesh)
        # Compiled as in training, which then finds the program in the compilation cache.
        update = cast(Any, run_chunk).lower(fixed, state).compile()
        needs = update.compiled.memory_analysis()
        if needs is not None and needs.temp_size_in_bytes + needs.output_size_in_bytes > memory:
            return None
        state, _ = jax.block_until_ready(update(fixed, state))
        began, done = time.perf_counter(), 0
        while not done or time.perf_counter() - began < _MEASURE_SECONDS:
            state, _ = jax.block_until_ready(update(fixed, state))
            done += 1
    except jax.errors.JaxRuntimeError as error:
        if "RESOURCE_EXHAUSTED" in str(error):
            return None
        raise
    return done * trainer.algorithm.batch_size / (time.perf_counter() - began)


def _memory() -> int:
    stats = jax.local_devices()[0].memory_stats() or {}
    # A CPU reports no limit, so use the free memory of the machine, or of the container.
    pages = "SC_AVPHYS_PAGES" if "SC_AVPHYS_PAGES" in os.sysconf_names else "SC_PHYS_PAGES"  # macOS
    free = os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
    return int(_MEMORY_SHARE * (stats.get("bytes_limit") or min(free, free_memory())))
