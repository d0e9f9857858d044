"""The host's side of the callback: the environments of all batches."""

import secrets
import weakref
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from ppo_mask.adapters._on_host._stepper import (
    BEGUN,
    IDLE,
    SERIAL,
    SESSION,
    SLOT,
    Layout,
    describe_error,
    record_of,
)
from ppo_mask.adapters._on_host._workers import WorkerError
from ppo_mask.errors import RunError, warn

ACTION, CUT, SEED = slice(3, -2), -2, -1
"""Columns of a request, after SESSION, SLOT and SERIAL; ACTION has one for each part."""

# How many batches of episodes may exist at once; beyond that, the least recently used is closed.
_MANY = 8


class Host:
    """The environments of all batches that a ``GymnasiumEnv`` has begun.

    The class uses only NumPy: JAX waits for the callback, so the callback must not wait for JAX.

    Attributes:
        layout: see ``Layout``.
        tree: the spaces of an observation's parts, in dicts and tuples.
        is_stack: whether images are stacks of frames.
    """

    def __init__(
        self, layout: Layout, tree: Any, is_stack: bool, make_stepper: Callable[[Layout, int], Any]
    ) -> None:
        """Makes no environment yet; each batch has a stepper for its number of environments."""
        self.layout, self.tree, self.is_stack = layout, tree, is_stack
        self._make_stepper = make_stepper
        self._steppers: dict[int, Any] = {}  # By session; the least recently used comes first.
        self._failure: BaseException | None = None
        self._last = 0  # The session that began last.
        # One thread for all that is done with environments, since some know no other thread.
        self._thread = ThreadPoolExecutor(1)
        weakref.finalize(self, _close, self._steppers, self._steppers)  # Also as the program ends.

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
        self._in_thread(_close, self._steppers, [self._last])

    def close(self) -> None:
        """Closes all environments."""
        self._in_thread(_close, self._steppers, self._steppers)

    def _in_thread(self, function: Any, *arguments: Any) -> Any:
        return self._thread.submit(function, *arguments).result()

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
            _close(self._steppers, [next(iter(self._steppers))])
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


def _close(steppers: dict[int, Any], sessions: Iterable[int]) -> None:
    for number in [*sessions]:
        if (stepper := steppers.pop(number, None)) is not None:
            stepper.close()


def _by_name(arrays: Any) -> dict[str, Any]:
    return {name: arrays[name] for name in arrays.dtype.names[3:]}  # Not what a step takes.
