"""Saves a run's checkpoints."""

import json
import math
import time
from collections.abc import Mapping
from typing import Any, SupportsIndex, final

from ppo_mask.checkpoints import RunDir
from ppo_mask.devices.processes import broadcast_from_0, is_process_0, wait_for_all
from ppo_mask.errors import FieldError, RunError, check_at_least, warn
from ppo_mask.training import Callback, LogRecord, Progress, Run, TrainingError, TrainState

_EVALUATION, _TRAINING = "eval/mean_episode_return", "train/mean_episode_return"
_PAUSES = (2.0, 5.0)  # Seconds between tries at the end; a preempted VM has about 30.


@final
class Saver(Callback):
    """Saves checkpoints at intervals and when the run stops, also to the run's bucket.

    Put the saver after callbacks that log.

    If an evaluation finds the best mean return so far, the state is saved at once. The score of an
    evaluated checkpoint is the evaluation's mean return. Any other checkpoint's score is the mean
    return of the latest complete log line whose ended episodes have, in total, at least half as
    many steps as the line covers. This excludes a run's first lines, where only short episodes end.

    If ``every_updates`` is set, the log scores only checkpoints at multiples of ``every_updates``.
    So stopping and resuming a run changes the best checkpoint only if the stop ends an evaluation
    early: a resumed run does not repeat this evaluation.

    If a save fails, the saver warns, and tries again at the next checkpoint.

    Args:
        run_dir: the run's folder.
        description: plain values to save with the arrays.
        every_minutes: the minutes between checkpoints.
        every_updates: the number of updates between checkpoints; replaces ``every_minutes``, unless
            the run ends before that many updates.

    Raises:
        FieldError: ``every_minutes`` or ``every_updates`` is too small.
        TypeError: JSON cannot hold the description.
    """

    def __init__(
        self,
        run_dir: RunDir,
        description: Mapping[str, Any],
        every_minutes: float = 10.0,
        every_updates: SupportsIndex | None = None,
    ) -> None:
        every_updates = None if every_updates is None else int(every_updates)
        check_at_least(1, every_updates=every_updates)
        if not every_minutes > 0:
            raise FieldError("every_minutes", f"must be more than 0, got {every_minutes}")
        json.dumps(description)  # Raises an error now, not at the first save.
        self._run_dir = run_dir
        self._description = description
        self._every_minutes = every_minutes
        self._every_updates = every_updates
        self._saved_at = 0.0
        self._training_return: float | None = None
        self._logged_updates = 0
        self._evaluated: dict[int, float] = {}  # The last evaluated update, and its mean return.
        self._saved_update: int | None = None
        self._failure: RunError | None = None
        self._reason = "finished"

    def next_update(self, update: int) -> int | None:
        every = self._every_updates
        return None if every is None else (update // every + 1) * every

    def on_start(self, run: Run, state: TrainState) -> None:
        if is_process_0():
            self._run_dir.clean()
        wait_for_all("cleaned")
        self._saved_at = time.monotonic()
        self._saved_update = run.start_update
        self._logged_updates = run.logged_updates
        if run.start_update in self._run_dir.steps():
            resumed = self._run_dir.checkpoint(run.start_update)
            self._training_return = resumed.about.get("training_return")

    def on_log(self, run: Run, record: LogRecord) -> None:
        if _EVALUATION in record.values:
            self._evaluated = {record.update: record.values[_EVALUATION]}
        if not record.partial and any(name.startswith("train/") for name in record.values):
            steps = (record.update - self._logged_updates) * run.algorithm.batch_size
            self._logged_updates = record.update
            if _steps_of_episodes(record.values, otherwise=steps) >= steps / 2:
                latest = record.values.get(_TRAINING, math.nan)
                self._training_return = latest if math.isfinite(latest) else self._training_return

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        due = self._is_planned(run.update)
        if self._every_updates is None or self._every_updates > run.total_updates:
            due = time.monotonic() - self._saved_at >= 60 * self._every_minutes
        if not due and (score := self._evaluated.get(run.update)) is not None:
            due = self._run_dir.would_be_best(score, evaluated=True)
        if broadcast_from_0(due):
            self._save(run, state)
            if self._failure is not None:
                kept = self._run_dir.what_is_kept()
                warn(f"{self._failure}; {kept}; the next checkpoint is the next try")

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        self._reason = reason
        self._save(run, state)
        for pause in _PAUSES:
            if self._failure is not None:
                time.sleep(pause)
                self._save(run, state)

    def outcome(self) -> str:
        """Returns why the run stopped, after checking that its last state is saved.

        Raises:
            TrainingError: the last save failed.
        """
        if self._failure is not None:
            raise TrainingError(f"{self._failure}; {self._run_dir.what_is_kept()}")
        return self._reason

    def _is_planned(self, update: int) -> bool:
        return self._every_updates is None or update % self._every_updates == 0

    def _save(self, run: Run, state: TrainState) -> None:
        score = self._evaluated.get(run.update)
        evaluated = score is not None
        if score is None and self._is_planned(run.update):
            score = self._training_return
        about = {
            **self._description,
            "update": run.update,
            "env_steps": run.update * run.algorithm.batch_size,
            "training_return": self._training_return,
        }
        self._failure = None
        try:
            if run.update != self._saved_update:
                self._run_dir.save(run.update, state, about, score, evaluated)
                self._saved_update = run.update
            self._run_dir.push()
        except RunError as error:
            self._failure = error
        self._saved_at = time.monotonic()


def _steps_of_episodes(values: Mapping[str, float], otherwise: int) -> float | int:
    """Sums the lengths of episodes that ended in a log line; ``otherwise`` if unknown."""
    episodes, length = "train/num_episodes", "train/mean_episode_length"
    return values[episodes] * values[length] if {episodes, length} <= values.keys() else otherwise
