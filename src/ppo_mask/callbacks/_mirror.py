"""Copies a run to its bucket as it goes on."""

import time
from collections.abc import Iterable
from typing import final

from ppo_mask.checkpoints import RunFolder
from ppo_mask.checkpoints.bucket import Bucket, push
from ppo_mask.errors import RunError, warn
from ppo_mask.training import Callback, Progress, Run, TrainingError, TrainState

_PAUSES = (2.0, 5.0)  # Seconds between tries at the end; a VM that is preempted has about 30.


@final
class Mirror(Callback):
    """Pushes a run to its bucket whenever there is a new checkpoint, and when it stops.

    Comes after the callback that saves. Where the bucket cannot be reached a warning says so, and
    the next checkpoint is the next try.

    Attributes:
        failure: why the bucket is behind the local folder; None if it is not.
    """

    failure: RunError | None

    def __init__(self, bucket: Bucket, folder: RunFolder) -> None:
        self._bucket = bucket
        self._folder = folder
        self._newest: int | None = None
        self.failure = None

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
        folder, bucket = self._folder.path, self._bucket.url
        return (
            f"{self.failure}; {folder} has the whole run, and --resume {bucket}/{folder.name} "
            "copies it"
        )

    def _push(self) -> None:
        try:
            push(self._bucket, self._folder)
        except RunError as error:
            self.failure = error
        else:
            self.failure = None


def make_sure(mirrors: Iterable[Mirror]) -> None:
    """Makes sure that runs which have ended are in their bucket as a whole.

    Raises:
        TrainingError: one is not.
    """
    behind = [mirror for mirror in mirrors if mirror.failure is not None]
    if behind:
        raise TrainingError("; ".join(map(str, behind)))
