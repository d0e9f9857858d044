"""The Python loop that runs chunks of updates, logs, and stops."""

import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from types import FrameType
from typing import no_type_check

from ppo_mask.devices.interrupts import second_interrupt_ends
from ppo_mask.devices.processes import broadcast_from_0, is_process_0, reason_of_any
from ppo_mask.errors import RunError, check_at_least
from ppo_mask.training._callback import Callback, Progress, Run
from ppo_mask.training._rules import MAX_COUNT
from ppo_mask.training._state import TrainState

# About how long a chunk of updates lasts: short enough for a live progress bar and for Ctrl+C, long
# enough that the time between chunks does not matter.
_CHUNK_SECONDS = 1.0

_STOPPING = (
    b"stopping in good order after this chunk of updates; press Ctrl+C again to end at once, "
    b"without saving\n"
)


def run_loop(
    run: Run,
    state: TrainState,
    callbacks: Sequence[Callback],
    log_interval: int,
    advance: Callable[[TrainState, int], TrainState],
    log: Callable[[TrainState, float, bool], TrainState],
    largest_chunk: int | None = None,
) -> TrainState:
    """Runs chunks of updates until all are done or the run is asked to stop.

    Args:
        run: passed to the callbacks.
        state: the first state.
        callbacks: called in this order.
        log_interval: updates between log lines; the end of the run adds a line.
        advance: does a number of updates, and waits in Python code until the updates are done,
            because Python handles signals only between its own instructions.
        log: writes a log line, given the state, steps per second, and whether the line is partial:
            the run's last, of fewer than ``log_interval`` updates. Returns the state, with its
            metric totals cleared after a line that is not partial.
        largest_chunk: most updates in a chunk; None for no limit.

    Raises:
        FieldError: ``log_interval`` is below 1.
        RunError: a log line covers more steps than an int32 can count.
    """
    check_at_least(1, log_interval=log_interval)
    steps = min(log_interval, run.total_updates) * run.algorithm.batch_size
    if steps > MAX_COUNT:
        raise RunError(
            f"a log line every {log_interval:,} updates would cover {steps:,} steps, and can cover "
            f"at most {MAX_COUNT:,}: take a smaller log_interval"
        )
    with closing(callbacks), _signals_stop(run):
        with no_garbage_collected():
            state = advance(state, 0)  # Compiles, and does nothing else.
        with run.holding_lines():
            for callback in callbacks:
                callback.on_start(run, state)
        batch, pace, unlogged_steps, unlogged_seconds = run.algorithm.batch_size, 1, 0, 0.0
        stop = reason_of_any(run.stop_reason)
        while run.update < run.total_updates and stop is None:
            log_at = min(run.total_updates, (run.update // log_interval + 1) * log_interval)
            until = min(log_at, next_wish(callbacks, run.update) or log_at)
            n = broadcast_from_0(min(pace, until - run.update, largest_chunk or pace))

            started = time.perf_counter()
            state = advance(state, n)
            seconds = time.perf_counter() - started

            run.update += n
            pace = max(1, min(2 * pace, round(_CHUNK_SECONDS * n / seconds)))
            unlogged_steps += n * batch
            unlogged_seconds += seconds
            if run.update == log_at:
                partial = run.update % log_interval != 0  # Only the run's last line may be partial.
                state = log(state, unlogged_steps / unlogged_seconds, partial)
                unlogged_steps, unlogged_seconds = 0, 0.0
            progress = Progress(
                run.update, run.total_updates, run.update * batch, n * batch / seconds
            )
            for callback in callbacks:
                callback.on_chunk(run, state, progress)
            stop = reason_of_any(run.stop_reason)
        for callback in callbacks:
            callback.on_stop(run, state, stop or "finished")
    return state


def next_wish(callbacks: Sequence[Callback], update: int) -> int | None:
    """Finds the next update, after ``update``, that a callback wants to see; None if none does."""
    wishes = [callback.next_update(update) for callback in callbacks]
    return min((wish for wish in wishes if wish and wish > update), default=None)


@contextmanager
def no_garbage_collected() -> Generator[None]:
    """Turns off garbage collection: tracing, which makes few cycles, gets a fifth faster."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


@contextmanager
def closing(callbacks: Sequence[Callback]) -> Generator[None]:
    """Closes all callbacks in the end, in order, even if closing one of them fails."""
    with ExitStack() as stack:
        for callback in reversed(callbacks):
            stack.callback(callback.close)
        yield


@no_type_check
def _interrupt(_: int, frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, except while JAX compiles, where an exception crashes Python."""
    while frame is not None:
        if frame.f_globals.get("__name__") == "jax._src.compiler":
            return
        frame = frame.f_back
    raise KeyboardInterrupt


@contextmanager
def _signals_stop(run: Run) -> Generator[None]:
    """Makes Ctrl+C, SIGTERM and SIGHUP (a closed terminal) ask for a stop.

    At the first signal, process 0 prints that a second Ctrl+C interrupts the run. Does nothing
    outside the main thread. A signal that is ignored, as SIGHUP is under ``nohup``, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    # Not in the handler: is_process_0 takes a lock of JAX, which the interrupted code may hold.
    prints = is_process_0()

    @no_type_check  # See `Run.request_stop`.
    def tell() -> None:
        nonlocal prints
        if prints:
            prints = False
            # Not print, which fails if the signal has interrupted another print.
            with suppress(OSError):
                os.write(2, _STOPPING)

    @no_type_check
    def ask(number: int, _: FrameType | None) -> None:
        run.request_stop(signal.Signals(number).name)
        if signal.SIGINT in heard:
            signal.signal(signal.SIGINT, _interrupt)
        tell()

    names = ("SIGINT", "SIGTERM", "SIGHUP")  # Windows has no SIGHUP.
    asking = [getattr(signal, name) for name in names if hasattr(signal, name)]
    heard = [number for number in asking if signal.getsignal(number) != signal.SIG_IGN]
    before = {number: signal.signal(number, ask) for number in heard}
    try:
        with second_interrupt_ends(tell):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
