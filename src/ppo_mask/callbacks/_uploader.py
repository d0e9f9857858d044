"""Pushes runs to a bucket."""

import time
from collections.abc import Sequence
from typing import final

from ppo_mask.checkpoints import RunFolder, Storage
from ppo_mask.devices.processes import is_process_0
from ppo_mask.errors import RunError, warn
from ppo_mask.training import Callback, Progress, Run, TrainingError, TrainState

_PAUSES = (2.0, 5.0)  # Seconds between tries at the end; a preempted VM has about 30.


@final
class Uploader(Callback):
    """Pushes runs to a bucket after every checkpoint, and when the runs stop.

    Put the uploader after every :class:`Saver`. If a push fails, the uploader warns, and tries
    again at the next checkpoint. Every process of a run needs an uploader; the uploader of process
    0 does the work.

    Args:
        storage: the storage of the runs.
        folders: the local folders of the runs.
    """

    def __init__(self, storage: Storage, folders: Sequence[RunFolder]) -> None:
        self._storage = storage
        self._newest: dict[RunFolder, int | None] = dict.fromkeys(folders if is_process_0() else ())
        self._failures: dict[RunFolder, RunError] = {}

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        for folder, newest in self._newest.items():
            self._newest[folder] = folder.checkpoints.newest()
            if self._newest[folder] != newest:
                self._push(folder)
                if folder in self._failures:
                    warn(f"{self._failures[folder]}; the next checkpoint is the next try")

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        for folder in self._newest:
            self._push(folder)
        for pause in _PAUSES:
            if self._failures:
                time.sleep(pause)
                for folder in [*self._failures]:
                    self._push(folder)

    def check(self) -> None:
        """Checks, after the runs have stopped, that the bucket has all files of every run.

        Raises:
            TrainingError: the last push of a run failed.
        """
        behind = [
            f"{failure}; {folder.path} has the whole run, and --resume "
            f"{self._storage.place(folder.path.name)} copies it"
            for folder, failure in self._failures.items()
        ]
        if behind:
            raise TrainingError("; ".join(behind))

    def _push(self, folder: RunFolder) -> None:
        self._failures.pop(folder, None)
        try:
            self._storage.push(folder)
        except RunError as error:
            self._failures[folder] = error
