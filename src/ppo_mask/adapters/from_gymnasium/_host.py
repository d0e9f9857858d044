"""What compiled code calls: the environments of all batches, on the host."""

import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, no_type_check

import numpy as np

from ppo_mask.adapters.from_gymnasium._stepper import describe_error
from ppo_mask.adapters.from_gymnasium._workers import WorkerError
from ppo_mask.errors import RunError, warn

SESSION, SLOT, SERIAL = range(3)
ACTION, CUT, SEED = slice(3, -2), -2, -1
"""Columns of what is asked: whose step it is, and what to do. An action has one for each part."""
TERMINATED, TRUNCATED, BEGUN = range(3, 6)
"""Columns of what is answered, after the first three: BEGUN where no step could be taken."""

# More batches of episodes at once than anybody needs.
_MANY = 8


class Answer(NamedTuple):
    """What came of a batch; arrays with a leading axis of environments, to be copied at once.

    Attributes:
        rows: whose step it was, and how the episodes stand.
        reward: and infos.
        mask: of what comes next.
        next: the observation from which to go on, in parts.
        final: the observation after the step where an episode has ended, in parts.
    """

    rows: Any
    reward: Any
    mask: Any
    next: tuple[Any, ...]
    final: tuple[Any, ...]


class _Session:
    """The environments of one batch, which are stepped together."""

    def __init__(self, stepper: Any, count: int) -> None:
        self.stepper = stepper
        self.used = 0
        # What is answered: session, slot and a serial number, of which every step has another, so
        # that an old state is known; and how the episodes stand.
        self.rows = np.zeros((count, 6), np.int32)
        self.rows[:, SLOT] = np.arange(count)


class Host:
    """The environments of all batches that a ``GymnasiumEnv`` has begun.

    Only NumPy here: JAX waits for the callback, and must not be waited for in it.
    """

    def __init__(self, name: str, layout: Any, make_stepper: Callable[[Any], Any]) -> None:
        """Makes no environment yet.

        Args:
            name: of the environment, for messages.
            layout: of arrays, for no environments.
            make_stepper: from a layout to what steps so many.
        """
        self.name = name
        self.layout = layout
        self._make_stepper = make_stepper
        self._sessions: dict[int, _Session] = {}
        self._failure: BaseException | None = None
        self._clock = 0
        self._last = 0  # The session that began last.
        self._is_over = False
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return self.name

    @no_type_check
    def begin(self, rows: Any) -> Answer:
        """Starts a batch of episodes; called by compiled code. It never raises."""
        return self._answer(self._begin, rows)

    @no_type_check
    def step(self, rows: Any) -> Answer:
        """Takes a step in a batch; called by compiled code. It never raises."""
        return self._answer(self._step, rows)

    def take_failure(self) -> Exception | None:
        """See :meth:`ppo_mask.envs.AbstractHostEnv.take_failure`."""
        error, self._failure = self._failure, None
        if error is None:
            return None
        self.close()  # Whatever state they are in.
        if isinstance(error, KeyboardInterrupt):
            raise error
        of_worker = isinstance(error, WorkerError)
        line = self.name + (str(error) if of_worker else describe_error(error))
        failure = RunError(line)
        failure.__cause__ = error
        return failure

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
        """Closes all environments, and makes none any more: the process ends."""
        self._is_over = True
        self.close()

    @no_type_check
    def _answer(self, call: Callable[[Any], Answer], rows: Any) -> Answer:
        rows = np.asarray(rows).copy()  # The memory is the caller's.
        with self._lock:
            if self._failure is None and not self._is_over:
                try:
                    return call(rows)
                except BaseException as error:  # Whatever it is, compiled code cannot pass it on.
                    self._failure = error
        return self._broken(rows)

    @no_type_check
    def _begin(self, rows: Any) -> Answer:
        session = self._open(len(rows), rows[:, SEED])
        return self._read(session, begun=False)

    @no_type_check
    def _step(self, rows: Any) -> Answer:
        number = int(rows[0, SESSION])
        session = self._sessions.get(number)
        if session is None or not np.array_equal(rows[:, :3], session.rows[:, :3]):
            warn(
                f"{self.name}: environments in Python are in no checkpoint and cannot go back: "
                f"{len(rows)} new episodes begin in place of those that ran"
            )
            session = self._open(len(rows), rows[:, SEED])
            return self._read(session, begun=True)
        arrays = session.stepper.arrays
        arrays["action"][:] = rows[:, ACTION].reshape(arrays["action"].shape)
        arrays["cut"][:] = rows[:, CUT] != 0
        session.stepper.step()
        session.rows[:, SERIAL] = (session.rows[:, SERIAL] + 1) & 0x7FFFFFFF
        self._clock += 1
        session.used = self._clock
        return self._read(session, begun=False)

    def _open(self, count: int, seeds: Any) -> _Session:
        if len(self._sessions) == _MANY:
            oldest = min(self._sessions, key=lambda number: self._sessions[number].used)
            self._sessions.pop(oldest).stepper.close()
        stepper = self._make_stepper(self.layout | {"num_envs": count})
        session = _Session(stepper, count)
        # Of no other process, for a resumed run has that one's numbers.
        number = 1 + secrets.randbits(30)
        session.rows[:, SESSION] = number
        stepper.arrays["seed"][:] = seeds
        stepper.reset()
        self._clock += 1
        session.used = self._clock
        self._sessions[number], self._last = session, number
        return session

    @no_type_check
    def _read(self, session: _Session, *, begun: bool) -> Answer:
        arrays, rows = session.stepper.arrays, session.rows
        rows[:, TERMINATED : TRUNCATED + 1] = arrays["ends"]
        rows[:, BEGUN] = begun
        parts = range(len(self.layout["leaves"]))
        following = tuple([arrays[f"next{i}"] for i in parts])
        final = tuple([arrays[f"final{i}"] for i in parts])
        return Answer(rows, arrays["numbers"], arrays["mask"], following, final)

    def _broken(self, rows: Any) -> Answer:
        """What ends every loop soon: a reward that is not finite, and nothing allowed."""
        n, layout = len(rows), self.layout
        numbers = np.zeros((n, 6), np.int32)
        numbers[:, :3] = rows[:, :3]
        reward = np.full((n, 1 + layout["num_infos"]), np.nan, np.float32)
        mask = np.zeros((n, layout["mask_length"]), bool)
        parts = tuple([np.zeros((n, *shape), dtype) for _, dtype, shape, _ in layout["leaves"]])
        return Answer(numbers, reward, mask, parts, parts)
