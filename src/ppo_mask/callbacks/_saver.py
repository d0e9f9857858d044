"""When a run is saved."""

import json
import time
from collections.abc import Mapping
from typing import Any, final

from ppo_mask.checkpoints import CheckpointStore
from ppo_mask.devices.processes import from_first, is_first, wait_for_all
from ppo_mask.training import Callback, LogRecord, Progress, Run, TrainState

_SCORES = ("eval/mean_episode_return", "train/mean_episode_return")


@final
class Saver(Callback):
    """Saves a run now and then, and when it stops. Comes after the callbacks that log.

    A checkpoint's score is the mean return of the last evaluation, or of training if there was no
    evaluation yet.

    Args:
        store: where to.
        description: what to put beside the arrays.
        every_minutes: time between checkpoints.
        every_updates: updates between checkpoints, in place of the time.

    Raises:
        TypeError: JSON cannot hold the description.
    """

    def __init__(
        self,
        store: CheckpointStore,
        description: Mapping[str, Any],
        every_minutes: float = 10.0,
        every_updates: int | None = None,
    ) -> None:
        json.dumps(description)  # Here, and not at the first save.
        self._store = store
        self._description = description
        self._every_minutes = every_minutes
        self._every_updates = every_updates
        self._saved_at = 0.0
        self._saved_update: int | None = None
        self._metrics: dict[str, float] = {}

    def next_update(self, update: int) -> int | None:
        every = self._every_updates
        return None if every is None else (update // every + 1) * every

    def on_start(self, run: Run, state: TrainState) -> None:
        if is_first():
            self._store.clean()
        wait_for_all("cleaned")
        self._saved_at = time.monotonic()
        self._saved_update = run.start_update

    def on_log(self, run: Run, record: LogRecord) -> None:
        self._metrics |= {k: v for k, v in record.values.items() if k in _SCORES}

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if self._every_updates is not None:
            due = run.update % self._every_updates == 0
        else:
            due = time.monotonic() - self._saved_at >= 60 * self._every_minutes
            due = bool(from_first(due))
        if due:
            self._save(run, state)

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        self._save(run, state)

    def _save(self, run: Run, state: TrainState) -> None:
        if run.update == self._saved_update:
            return
        progress = {"update": run.update, "env_steps": run.update * run.config.batch_size}
        scores = (self._metrics[name] for name in _SCORES if name in self._metrics)
        self._store.save(run.update, state, {**self._description, **progress}, next(scores, None))
        self._saved_at = time.monotonic()
        self._saved_update = run.update
