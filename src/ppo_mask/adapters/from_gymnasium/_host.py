"""The host's side of the callback: the environments of all batches."""

import secrets
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, no_type_check

import numpy as np

from ppo_mask.adapters.from_gymnasium._stepper import IDLE, UnfitError, describe_error, make_arrays
from ppo_mask.adapters.from_gymnasium._workers import WorkerError
from ppo_mask.errors import RunError, warn

SESSION, SLOT, SERIAL = range(3)
ACTION, CUT, SEED = slice(3, -2), -2, -1
"""Columns of a request. ``ACTION`` has a column for each part of an action."""
TERMINATED, TRUNCATED, BEGUN = range(3, 6)
"""More columns of an answer; BEGUN means that a new episode began instead of a step."""

# How many batches of episodes may exist at once; beyond that, the least recently used is closed.
_MANY = 8

# Seconds after which an environment that is to be closed, and is busy, counts as hung.
_PATIENCE = 2.0


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


class _Thread:
    """A thread for all that is done with environments, since some know no other thread.

    A daemon, so that an environment that hangs does not keep the program from ending.
    """

    def __init__(self) -> None:
        self._calls: SimpleQueue[Any] = SimpleQueue()
        self._waiting: set[SimpleQueue[Any]] = set()
        threading.Thread(target=_serve, args=(self._calls,), daemon=True).start()

    @no_type_check
    def ask(self, function: Any, *arguments: Any) -> SimpleQueue[Any]:
        """Has a function called as soon as the thread is free; ``wait`` takes the reply."""
        reply = SimpleQueue()
        self._waiting.add(reply)
        self._calls.put((function, arguments, reply))
        return reply

    @no_type_check
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


@no_type_check
def _serve(calls: Any) -> None:
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

    def __init__(self, name: str, layout: Any, make_stepper: Callable[[Any], Any]) -> None:
        """Makes no environment yet; ``layout`` has no ``num_envs``, which each batch adds."""
        self.name = name
        self.layout = layout
        self._make_stepper = make_stepper
        self._sessions: dict[int, _Session] = {}  # The least recently used comes first.
        self._failure: BaseException | None = None
        self._last = 0  # The session that began last.
        self._is_over = False
        self._thread: _Thread | None = None  # Of all environments, as long as there are any.
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
        """See ``AbstractHostEnv.take_failure``."""
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
        return None if draw is None else self._in_thread(draw, int(numbers[SLOT]), ended)

    def release(self) -> None:
        """See ``AbstractHostEnv.release``."""
        with self._lock:
            if (session := self._sessions.pop(self._last, None)) is not None:
                self._close([session])

    def close(self) -> None:
        """Closes all environments."""
        with self._lock:
            sessions, self._sessions = self._sessions, {}
            self._close([*sessions.values()])

    def end(self) -> None:
        """Closes all environments for good, because the process ends."""
        self._is_over = True
        self.close()

    @no_type_check
    def _close(self, sessions: Any) -> None:
        """Closes sessions, and ends the thread after the last; gives all up if one hangs."""
        if (thread := self._thread) is None:
            return
        try:
            thread.wait(thread.ask(len, ()), _PATIENCE)
            for session in sessions:
                thread.wait(thread.ask(session.stepper.close))
        except Empty:
            for session in [*sessions, *self._sessions.values()]:
                getattr(session.stepper, "kill", tuple)()
                thread.ask(session.stepper.close)
            self._sessions = {}
        if not self._sessions:
            thread.end()
            self._thread = None

    @no_type_check
    def _in_thread(self, function: Any, *arguments: Any) -> Any:
        with self._lock:
            if self._is_over:
                raise UnfitError("the program ends")
            self._thread = self._thread or _Thread()
            thread, reply = self._thread, self._thread.ask(function, *arguments)
        return thread.wait(reply)

    @no_type_check
    def _answer(self, call: Callable[[Any], Answer], rows: Any) -> Answer:
        rows = np.asarray(rows).copy()  # The caller owns the memory.
        if self._failure is None:
            try:
                return self._in_thread(call, rows)
            except BaseException as error:  # Compiled code cannot pass any error on.
                self._failure = self._failure or error
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
