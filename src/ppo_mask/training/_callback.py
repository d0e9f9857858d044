"""The callback interface, its arguments, and a callback that keeps log lines in memory."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, final, no_type_check

import numpy as np
import numpy.typing as npt

from ppo_mask.training._algorithm import AbstractAlgorithm
from ppo_mask.training._names import check_logged_names
from ppo_mask.training._state import TrainState


@dataclass(frozen=True)
class LogRecord:
    """A log line.

    Attributes:
        update: updates done.
        env_steps: environment steps done, over all environments.
        values: metrics by name, such as ``train/entropy``. A metric without a value, such as the
            mean return if no episode ended, is left out.
        partial: whether this is the last line of a run and covers fewer than ``log_interval``
            updates. If the run is resumed, its next line covers these updates again.
        of_seeds: in a run of several seeds, the values of each seed, of which ``values`` are the
            means.
    """

    update: int
    env_steps: int
    values: dict[str, float]
    partial: bool = False
    of_seeds: Sequence[Mapping[str, float]] = ()


@dataclass(frozen=True)
class Progress:
    """How far a run has come.

    Attributes:
        update: updates done.
        total_updates: updates at the end of the run.
        env_steps: environment steps done, over all environments.
        steps_per_second: environment steps per second in the last chunk, callbacks not counted.
    """

    update: int
    total_updates: int
    env_steps: int
    steps_per_second: float


class Run:
    """A run, as its callbacks see it.

    Attributes:
        algorithm: what is trained, and how.
        total_updates: updates at the end of the run.
        start_update: updates done when ``train`` was called; 0 unless the run was resumed.
        update: updates done.
        logged_updates: updates that full log lines cover, at most ``start_update``; a line covers
            several updates.

    Args:
        callbacks: receive the log lines.
        unlogged_updates: updates before ``start_update`` that no full log line covers.
        of: the run of all seeds, if this is the run of one seed. A request to stop this run, or the
            run of all seeds, stops both.
    """

    def __init__(
        self,
        algorithm: AbstractAlgorithm,
        start_update: int,
        total_updates: int,
        callbacks: Sequence["Callback"],
        unlogged_updates: int = 0,
        of: "Run | None" = None,
    ):
        self.algorithm = algorithm
        self.total_updates = total_updates
        self.start_update = start_update
        self._stop_reasons: list[str] = [] if of is None else of._stop_reasons
        self.update = start_update
        self._callbacks = callbacks
        self.logged_updates = start_update - unlogged_updates

    # No type checks: beartype takes a lock, which the interrupted code may hold.
    @no_type_check
    def request_stop(self, reason: str) -> None:
        """Asks the run to stop cleanly after the current chunk.

        Signal handlers and other threads may call this method.

        Args:
            reason: passed to ``on_stop``; only the first request's reason counts.
        """
        self._stop_reasons.append(reason)

    @property
    def stop_reason(self) -> str | None:
        """Why the run is asked to stop, or None."""
        return self._stop_reasons[0] if self._stop_reasons else None

    @property
    def start_step(self) -> int:
        """Environment steps done when ``train`` was called."""
        return self.start_update * self.algorithm.batch_size

    def log(
        self,
        values: Mapping[str, Any],
        partial: bool = False,
        of_seeds: Sequence[Mapping[str, float]] = (),
    ) -> None:
        """Logs metrics, such as those of an evaluation: calls ``on_log`` of every callback.

        What a callback logs in ``on_start`` is logged once all callbacks have started.

        Args:
            values: metrics by name; plain numbers or scalar arrays.
            partial: see :class:`LogRecord`.
            of_seeds: see :class:`LogRecord`.

        Raises:
            ValueError: a metric is not a number, or its name is reserved.
        """
        check_logged_names(values)
        step = self.update * self.algorithm.batch_size
        numbers = {k: _number(k, values[k]) for k in values}
        record = LogRecord(self.update, step, numbers, partial, of_seeds)
        for callback in self._callbacks:
            callback.on_log(self, record)

    @contextmanager
    def holding_lines(self) -> Generator[None]:
        """Holds log lines until the end of the ``with`` block, in which the callbacks start."""
        callbacks, held = self._callbacks, History()
        self._callbacks = [held]
        yield
        self._callbacks = callbacks
        for record in held.records:
            for callback in callbacks:
                callback.on_log(self, record)

    def keeps(self, env_steps: int, names: Iterable[str]) -> bool:
        """Whether a resumed run keeps a log line that an earlier process wrote.

        A resumed run drops partial lines, and lines of updates that will be repeated.

        Args:
            env_steps: the line's environment steps.
            names: the names of the line's metrics.

        Returns:
            Whether to keep the line.
        """
        if env_steps == self.start_step and self.logged_updates < self.start_update:
            return not any(name.startswith("train/") for name in names)
        return env_steps <= self.start_step


def _number(name: str, value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise ValueError(f"the metric {name} must be a number, got {value!r}") from None


class Callback:
    """Watches a run between two compiled chunks. Override any methods; the defaults do nothing.

    A state is valid only until the callback returns, because the next chunk reuses the state's
    buffers. To keep a part of a state, copy the part. All numbers in the state are finite.

    Example:
        >>> import ppo_mask as pm
        >>> class StopAtReturn(pm.Callback):
        ...     def on_log(self, run, record):
        ...         if record.values.get("train/mean_episode_return", 0.0) > 7.5:
        ...             run.request_stop("solved")
    """

    def next_update(self, update: int) -> int | None:
        """Chooses an update after which to call ``on_chunk``.

        Args:
            update: updates done.

        Returns:
            An update after ``update``; None to choose none.
        """
        return None

    def on_start(self, run: Run, state: TrainState) -> None:
        """Called once, after compilation and before the first chunk."""

    def on_log(self, run: Run, record: LogRecord) -> None:
        """Called with every log line."""

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        """Called about once a second, and after each update that :meth:`next_update` chose."""

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        """Called once when the run ends cleanly: all updates are done, or a stop was requested."""

    def close(self) -> None:
        """Called last, even after an error, to close files and other resources."""


@final
class History(Callback):
    """Keeps a run's log lines in memory.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=16, num_steps=32))
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> history = pm.History()
        >>> state = trainer.init(model, jax.random.key(1))
        >>> state = trainer.train(state, 2 * 16 * 32, callbacks=[history], log_interval=1)
        >>> history.steps.tolist()
        [512, 1024]
        >>> history["train/entropy"].shape
        (2,)

    Attributes:
        records: the log lines, in order.
    """

    def __init__(self) -> None:
        self.records: list[LogRecord] = []

    def on_log(self, run: Run, record: LogRecord) -> None:
        """See :class:`Callback`."""
        self.records.append(record)

    @property
    def steps(self) -> npt.NDArray[np.int64]:
        """The environment steps done at each log line."""
        return np.array([record.env_steps for record in self.records], np.int64)

    @property
    def names(self) -> list[str]:
        """The names of all metrics, in order of first appearance."""
        return list(dict.fromkeys(name for record in self.records for name in record.values))

    def __getitem__(self, name: str) -> npt.NDArray[np.float64]:
        """Returns a metric at each log line; NaN where a line lacks the metric.

        Raises:
            KeyError: no line has the metric; the message lists the known metrics.
        """
        if name not in self.names:
            raise KeyError(f"there is no metric {name}; there are {', '.join(self.names)}")
        return np.array([record.values.get(name, np.nan) for record in self.records], np.float64)

    def __repr__(self) -> str:
        last: Any = self.records[-1].env_steps if self.records else 0
        return f"History({len(self.records)} log lines, {last:,} steps)"
