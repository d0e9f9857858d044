"""What a training run shows to the outside, and what the outside may ask of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ppo_mask.config import PPOConfig
from ppo_mask.state import TrainState


@dataclass(frozen=True)
class LogRecord:
    """A log line.

    Attributes:
        update: updates done.
        env_steps: environment steps done, over all environments.
        values: figures by name, such as ``train/entropy``. What there is nothing to say about,
            such as the mean return when no episode ended, is not in it.
    """

    update: int
    env_steps: int
    values: dict[str, float]


@dataclass(frozen=True)
class Progress:
    """How far a run is.

    Attributes:
        update: updates done.
        total_updates: when the run ends.
        env_steps: environment steps done, over all environments.
        steps_per_second: environment steps per second in the last chunk, callbacks not counted.
    """

    update: int
    total_updates: int
    env_steps: int
    steps_per_second: float


class Run:
    """A run under way, as its callbacks see it.

    Attributes:
        config: hyperparameters.
        total_updates: when the run ends.
        start_update: updates done before it began, 0 unless it was resumed.
        update: updates done.
        stop_reason: why it is to stop, or None.
    """

    def __init__(
        self,
        config: PPOConfig,
        start_update: int,
        total_updates: int,
        callbacks: Sequence["Callback"],
    ):
        self.config = config
        self.total_updates = total_updates
        self.start_update = start_update
        self.stop_reason: str | None = None
        self.update = start_update
        self._callbacks = callbacks

    def request_stop(self, reason: str) -> None:
        """Ends the run in good order after the chunk that is running; the first reason counts."""
        self.stop_reason = self.stop_reason or reason

    def log(self, values: Mapping[str, float]) -> None:
        """Hands figures, an evaluation's say, to every callback's ``on_log``."""
        record = LogRecord(self.update, self.update * self.config.batch_size, dict(values))
        for callback in self._callbacks:
            callback.on_log(self, record)


class Callback:
    """Looks at a run from outside the compiled loop. Override what you need; all do nothing here.

    A state handed to a callback is good only until the callback returns: its buffers are used again
    for the next chunk. Copy what is to be kept. A state is finite whenever a callback sees it.
    """

    def next_update(self, update: int) -> int | None:
        """The next update, after ``update``, at whose end to look; None if any time will do."""
        return None

    def on_start(self, run: Run, state: TrainState) -> None:
        """Called once, when all is compiled."""

    def on_log(self, run: Run, record: LogRecord) -> None:
        """Called with every log line."""

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        """Called about once a second, and whenever a callback asked for it by ``next_update``."""

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        """Called once if the run ends in good order: finished, or asked to stop."""

    def close(self) -> None:
        """Called last and always, also after an error: for files and screens."""
