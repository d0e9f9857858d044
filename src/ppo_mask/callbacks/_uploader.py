"""Copies a run to where runs are kept."""

import time
from collections.abc import Iterable
from typing import final

from ppo_mask.checkpoints import RunFolder, Storage
from ppo_mask.errors import RunError, warn
from ppo_mask.training import Callback, Progress, Run, TrainingError, TrainState

_PAUSES = (2.0, 5.0)  # Seconds between tries at the end; a VM that is preempted has about 30.


@final
class Uploader(Callback):
    """Pushes a run to its storage whenever there is a new checkpoint, and when it stops.

    Comes after the callback that saves. Where that fails a warning says so, and the next checkpoint
    is the next try.

    Args:
        storage: of the run.
        folder: of the run, on this machine.

    Attributes:
        failure: why the storage is behind the local folder; None if it is not.
    """

    failure: RunError | None = None

    def __init__(self, storage: Storage, folder: RunFolder) -> None:
        self._storage = storage
        self._folder = folder
        self._newest: int | None = None

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        """See :class:`Callback`."""
        newest = self._folder.checkpoints.newest()
        if newest != self._newest:
            self._newest = newest
            self._push()
            if self.failure is not None:
                warn(f"{self.failure}; the next checkpoint is the next try")

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        """See :class:`Callback`."""
        self._push()
        for pause in _PAUSES:
            if self.failure is not None:
                time.sleep(pause)
                self._push()

    def __str__(self) -> str:
        folder = self._folder.path
        return (
            f"{self.failure}; {folder} has the whole run, and --resume "
            f"{self._storage.place}/{folder.name} copies it"
        )

    def _push(self) -> None:
        try:
            self._storage.push(self._folder)
            self.failure = None
        except RunError as error:
            self.failure = error


def check_uploaded(uploaders: Iterable[Uploader]) -> None:
    """Makes sure that runs which have ended are in their storage as a whole.

    Raises:
        TrainingError: one is not.
    """
    behind = [str(uploader) for uploader in uploaders if uploader.failure is not None]
    if behind:
        raise TrainingError("; ".join(behind))
