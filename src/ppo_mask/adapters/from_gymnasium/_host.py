"""The host's side of the callback: the environments of all batches."""

import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

import numpy as np

from ppo_mask.adapters.from_gymnasium._stepper import IDLE, describe_error, make_arrays
from ppo_mask.adapters.from_gymnasium._workers import WorkerError
from ppo_mask.errors import RunError, warn

SESSION, SLOT, SERIAL = range(3)
ACTION, CUT, SEED = slice(3, -2), -2, -1
"""Columns of a request. ``ACTION`` has a column for each part of an action."""
TERMINATED, TRUNCATED, BEGUN = range(3, 6)
"""More columns of an answer; BEGUN means that a new episode began instead of a step."""

# How many batches of episodes may exist at once; beyond that, the least recently used is closed.
_MANY = 8


class Answer(NamedTuple):
    """The result of a batch's step: arrays with a leading axis of environments.

    The next step overwrites the arrays, so copy them before.

    Attributes:
        rows: the numbers of ``HostState``, whether the episode terminated, whether it was
            truncated, and whether a new episode began instead of a step.
        reward: the reward, followed by the infos.
        mask: the mask for the next action.
        next: the observation for the next action, one array for each part.
        final: where an episode has ended, the last observation, one array for each part.
        final_mask: where an episode was truncated, the mask of the last observation.
    """

    rows: Any
    reward: Any
    mask: Any
    next: tuple[Any, ...]
    final: tuple[Any, ...]
    final_mask: Any


class _Session(NamedTuple):
    """The environments of one batch, which are stepped together.

    ``rows`` has the columns session, slot and a serial number, which every step increases, so that
    an old state is recognized; then TERMINATED, TRUNCATED and BEGUN.
    """

    stepper: Any
    rows: Any


class Host:
    """The environments of all batches that a ``GymnasiumEnv`` has begun.

    The class uses only NumPy: JAX waits for the callback, so the callback must not wait for JAX.
    """

    def __init__(self, name: str, layout: Any, make_stepper: Callable[[Any], Any]) -> None:
        """Makes no environment yet; ``layout`` has no ``num_envs``, which each batch adds."""
        self.name = name
        self.layout = layout
        self._make_stepper = make_stepper
        self._sessions: dict[int, _Session] = {}  # The least recently used comes first.
        self._failure: BaseException | None = None
        self._last = 0  # The session that began last.
        self._is_over = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return self.name

    @no_type_check
    def begin(self, rows: Any) -> Answer:
        """Starts a batch of episodes; called by compiled code. Never raises an error."""
        return self._answer(self._begin, rows)

    @no_type_check
    def step(self, rows: Any) -> Answer:
        """Takes a step in a batch; called by compiled code. Never raises an error."""
        return self._answer(self._step, rows)

    def take_failure(self) -> Exception | None:
        """See :meth:`ppo_mask.envs.AbstractHostEnv.take_failure`."""
        error, self._failure = self._failure, None
        if error is None:
            return None
        self.close()  # A failure leaves the environments in an unknown state.
        if isinstance(error, KeyboardInterrupt):
            raise error
        of_worker = isinstance(error, WorkerError)
        line = self.name + (str(error) if of_worker else describe_error(error))
        failure = RunError(line)
        failure.__cause__ = error
        return failure

    def prepare_to_draw(self, as_text: bool) -> None:
        known = self.layout["render_modes"]
        modes = ("ansi",) if as_text else ("rgb_array", "ansi")
        # "" is for an environment that was given a render mode by the function that makes it.
        self.layout["render_mode"] = next((mode for mode in modes if mode in known), "")

    def draw(self, numbers: Any, ended: bool) -> Any:
        """Draws an environment, given its numbers in ``HostState``; None if it cannot be drawn."""
        session = self._sessions.get(int(numbers[SESSION]))
        draw = getattr(session and session.stepper, "draw", None)
        picture: Any = None if draw is None else draw(int(numbers[SLOT]), ended)
        if isinstance(picture, np.ndarray) and picture.shape[2:] == (3,):
            return picture.astype(np.uint8)
        return picture if isinstance(picture, str) else None

    def release(self) -> None:
        """See :meth:`ppo_mask.envs.AbstractHostEnv.release`."""
        with self._lock:
            if (session := self._sessions.pop(self._last, None)) is not None:
                session.stepper.close()

    def close(self) -> None:
        """Closes all environments."""
        with self._lock:
            for session in self._sessions.values():
                session.stepper.close()
            self._sessions.clear()

    def end(self) -> None:
        """Closes all environments for good, because the process ends."""
        self._is_over = True
        self.close()

    @no_type_check
    def _answer(self, call: Callable[[Any], Answer], rows: Any) -> Answer:
        rows = np.asarray(rows).copy()  # The caller owns the memory.
        with self._lock:
            if self._failure is None and not self._is_over:
                try:
                    return call(rows)
                except BaseException as error:  # Compiled code cannot pass any error on.
                    self._failure = error
        return self.broken(rows)

    @no_type_check
    def _begin(self, rows: Any) -> Answer:
        return self._open(rows, begun=False)

    @no_type_check
    def _step(self, rows: Any) -> Answer:
        number = int(rows[0, SESSION])
        session = self._sessions.get(number)
        if session is None or not np.array_equal(rows[:, :3], session.rows[:, :3]):
            warn(
                f"{self.name}: environments in Python are in no checkpoint and cannot go back: "
                f"{len(rows)} new episodes replace those that were running"
            )
            return self._open(rows, begun=True)
        arrays = session.stepper.arrays
        arrays["action"][:] = rows[:, ACTION].reshape(arrays["action"].shape)
        arrays["cut"][:] = rows[:, CUT] != 0
        session.stepper.step()
        moved = (rows[:, ACTION] != IDLE).all(axis=1)
        session.rows[:, SERIAL] = (session.rows[:, SERIAL] + moved) & 0x7FFFFFFF
        self._sessions[number] = self._sessions.pop(number)
        return self._read(session.stepper.arrays, session.rows, begun=False)

    def _open(self, rows: Any, *, begun: bool) -> Answer:
        if len(self._sessions) == _MANY:
            self._sessions.pop(next(iter(self._sessions))).stepper.close()
        stepper = self._make_stepper(self.layout | {"num_envs": len(rows)})
        stepper.arrays["seed"][:] = rows[:, SEED]
        stepper.reset()
        # Random, since the state of a resumed run has session numbers of an earlier process.
        self._last = 1 + secrets.randbits(30)
        numbers = np.zeros((len(rows), 6), np.int32)
        numbers[:, SESSION] = self._last
        numbers[:, SLOT] = np.arange(len(rows))
        self._sessions[self._last] = _Session(stepper, numbers)
        return self._read(stepper.arrays, numbers, begun=begun)

    @no_type_check
    def _read(self, arrays: Any, rows: Any, *, begun: bool) -> Answer:
        rows[:, TERMINATED : TRUNCATED + 1] = arrays["ends"]
        rows[:, BEGUN] = begun
        parts = range(len(self.layout["leaves"]))
        following = tuple([arrays[f"next{i}"] for i in parts])
        final = tuple([arrays[f"final{i}"] for i in parts])
        masks = arrays["mask"], arrays["final_mask"]
        return Answer(rows, arrays["numbers"], masks[0], following, final, masks[1])

    @no_type_check
    def broken(self, rows: Any) -> Answer:
        """Makes an answer that soon stops a run or evaluation: NaN rewards, no allowed action."""
        arrays = make_arrays(self.layout | {"num_envs": len(rows)})
        arrays["numbers"][:] = np.nan
        numbers = np.zeros((len(rows), 6), np.int32)
        numbers[:, :3] = rows[:, :3]
        return self._read(arrays, numbers, begun=False)
