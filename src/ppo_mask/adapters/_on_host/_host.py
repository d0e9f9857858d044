"""The host's side of the callback: the environments of all batches."""

import secrets
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from ppo_mask.adapters._on_host._stepper import (
    BEGUN,
    IDLE,
    SERIAL,
    SESSION,
    SLOT,
    Layout,
    UnfitError,
    describe_error,
    record_of,
)
from ppo_mask.adapters._on_host._workers import WorkerError
from ppo_mask.errors import RunError, warn

ACTION, CUT, SEED = slice(3, -2), -2, -1
"""Columns of a request, after SESSION, SLOT and SERIAL; ACTION has one for each part."""

# How many batches of episodes may exist at once; beyond that, the least recently used is closed.
_MANY = 8

# Seconds after which an environment that is to be closed, and is busy, counts as hung.
_PATIENCE = 2.0


class _Thread:
    """A thread for all that is done with environments, since some know no other thread.

    A daemon, so that an environment that hangs does not keep the program from ending.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._waiting: set[SimpleQueue[Any]] = set()
        threading.Thread(target=_serve, args=(self._calls,), daemon=True).start()

    def ask(self, function: Any, *arguments: Any) -> SimpleQueue[Any]:
        """Has a function called as soon as the thread is free; ``wait`` takes the reply."""
        reply: SimpleQueue[Any] = SimpleQueue()
        self._waiting.add(reply)
        self._calls.put((function, arguments, reply))
        return reply

    def wait(self, reply: SimpleQueue[Any], timeout: float | None = None) -> Any:
        """Returns or raises what a function did."""
        try:
            result, error = reply.get(timeout=timeout)
        finally:
            self._waiting.discard(reply)
        if error is not None:
            raise error
        return result

    def end(self) -> None:
        """Ends the thread after all calls. Whoever waits for one gets an error at once."""
        self._calls.put(None)
        for reply in list(self._waiting):
            reply.put((None, UnfitError("a step or a reset did not end")))


def _serve(calls: SimpleQueue[Any]) -> None:
    while (call := calls.get()) is not None:
        function, arguments, reply = call
        try:
            reply.put((function(*arguments), None))
        except BaseException as error:
            reply.put((None, error))
        del call, function, arguments, reply  # While the thread waits, it keeps nothing alive.


class Host:
    """The environments of all batches that a ``GymnasiumEnv`` has begun.

    The class uses only NumPy: JAX waits for the callback, so the callback must not wait for JAX.
    """

    def __init__(self, layout: Layout, make_stepper: Callable[[Layout, int], Any]) -> None:
        """Makes no environment yet; each batch has a stepper for its number of environments."""
        self.layout = layout
        self._make_stepper = make_stepper
        self._steppers: dict[int, Any] = {}  # By session; the least recently used comes first.
        self._failure: BaseException | None = None
        self._last = 0  # The session that began last.
        self._is_over = False
        self._thread: _Thread | None = None  # Of all environments, as long as there are any.
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return self.layout.name

    def step(self, rows: Any) -> dict[str, Any]:
        """Takes a step in a batch, or begins one; called by compiled code. Never raises an error.

        Args:
            rows: for each environment, the numbers of ``HostState``, which are 0 to begin, the
                action, whether to cut the episode off, and a seed for an environment that begins.

        Returns:
            The arrays of the batch's records (see ``record_of``). The next step overwrites them, so
            copy them before.
        """
        rows = np.asarray(rows).copy()  # The caller owns the memory.
        if self._failure is None:
            try:
                return self._in_thread(self._step, rows)
            except BaseException as error:  # Compiled code cannot pass any error on.
                self._failure = self._failure or error
        return self.broken(rows)

    def broken(self, rows: Any) -> dict[str, Any]:
        """Makes an answer that soon stops a run or evaluation: NaN rewards, no allowed action."""
        arrays = np.zeros(len(rows), record_of(self.layout))
        arrays["numbers"] = np.nan
        arrays["row"][:, :3] = rows[:, :3]
        return _by_name(arrays)

    def take_failure(self) -> Exception | None:
        """See ``AbstractHostEnv.take_failure``."""
        error, self._failure = self._failure, None
        if error is None:
            return None
        self.close()  # A failure leaves the environments in an unknown state.
        if isinstance(error, KeyboardInterrupt):
            raise error
        line = str(error) if isinstance(error, WorkerError) else describe_error(error)
        failure = RunError(self.layout.name + line)
        failure.__cause__ = error
        return failure

    def prepare_to_draw(self, as_text: bool) -> None:
        """See ``AbstractHostEnv.prepare_to_draw``."""
        modes = ("ansi",) if as_text else ("rgb_array", "ansi")
        mode = next((mode for mode in modes if mode in self.layout.render_modes), "")
        self.layout = self.layout._replace(render_mode=mode)

    def draw(self, numbers: Any, ended: bool) -> Any:
        """Draws an environment, given its numbers in ``HostState``; None if it cannot be drawn."""
        draw = getattr(self._steppers.get(int(numbers[SESSION])), "draw", None)
        return None if draw is None else self._in_thread(draw, int(numbers[SLOT]), ended)

    def release(self) -> None:
        """See ``AbstractHostEnv.release``."""
        with self._lock:
            if (stepper := self._steppers.pop(self._last, None)) is not None:
                self._close([stepper])

    def close(self) -> None:
        """Closes all environments."""
        with self._lock:
            steppers, self._steppers = self._steppers, {}
            self._close([*steppers.values()])

    def end(self) -> None:
        """Closes all environments for good, because the process ends."""
        self._is_over = True
        self.close()

    def _close(self, steppers: list[Any]) -> None:
        """Closes steppers, and ends the thread after the last; gives all up if one hangs."""
        if (thread := self._thread) is None:
            return
        try:
            thread.wait(thread.ask(len, ()), _PATIENCE)
            for stepper in steppers:
                thread.wait(thread.ask(stepper.close))
        except Empty:
            for stepper in [*steppers, *self._steppers.values()]:
                getattr(stepper, "kill", tuple)()
                thread.ask(stepper.close)
            self._steppers = {}
        if not self._steppers:
            thread.end()
            self._thread = None

    def _in_thread(self, function: Any, *arguments: Any) -> Any:
        with self._lock:
            if self._is_over:
                raise UnfitError("the program ends")
            self._thread = self._thread or _Thread()
            thread, reply = self._thread, self._thread.ask(function, *arguments)
        return thread.wait(reply)

    def _step(self, rows: Any) -> dict[str, Any]:
        number = int(rows[0, SESSION])
        stepper = self._steppers.get(number)
        if stepper is None or not np.array_equal(rows[:, :3], stepper.arrays["row"][:, :3]):
            return self._begin(rows, number != 0)
        arrays = stepper.arrays
        arrays["action"] = rows[:, ACTION].reshape(arrays["action"].shape)
        arrays["cut"] = rows[:, CUT]
        stepper.step()
        moved = (rows[:, ACTION] != IDLE).all(axis=1)
        arrays["row"][:, SERIAL] = (arrays["row"][:, SERIAL] + moved) & 0x7FFFFFFF
        arrays["row"][:, BEGUN] = False
        self._steppers[number] = self._steppers.pop(number)
        return _by_name(arrays)

    def _begin(self, rows: Any, is_lost: bool) -> dict[str, Any]:
        """Begins a batch of episodes, also where those that were to go on are lost."""
        if is_lost:
            warn(
                f"{self.layout.name}: environments in Python are in no checkpoint and cannot go "
                f"back: {len(rows)} new episodes replace those that were running"
            )
        if len(self._steppers) == _MANY:
            self._steppers.pop(next(iter(self._steppers))).close()
        stepper = self._make_stepper(self.layout, len(rows))
        arrays = stepper.arrays
        arrays["seed"] = rows[:, SEED]
        stepper.reset()
        # Random, since the state of a resumed run has session numbers of an earlier process.
        self._last = 1 + secrets.randbits(30)
        arrays["row"][:, SESSION] = self._last
        arrays["row"][:, SLOT] = np.arange(len(rows))
        arrays["row"][:, BEGUN] = is_lost
        self._steppers[self._last] = stepper
        return _by_name(arrays)


def _by_name(arrays: Any) -> dict[str, Any]:
    return {name: arrays[name] for name in arrays.dtype.names[3:]}  # Not what a step takes.
