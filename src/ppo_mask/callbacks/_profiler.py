"""Traces one update, for TensorBoard and Perfetto."""

from collections.abc import Callable
from pathlib import Path
from typing import SupportsIndex, final

import jax

from ppo_mask.errors import check_at_least, first_line, warn
from ppo_mask.training import Callback, Progress, Run, TrainState


@final
class Profiler(Callback):
    """Traces one update with JAX's profiler.

    Put the profiler before the other callbacks, so that the trace contains little of their work.

    Args:
        directory: the folder for the trace. The files go to ``plugins/profile/<time>/`` in this
            folder, where TensorBoard looks, with a ``perfetto_trace.json.gz`` for
            https://ui.perfetto.dev.
        update: the number of the update to trace; a run's first update is 1.
    """

    def __init__(self, directory: Path, update: SupportsIndex) -> None:
        check_at_least(1, update=int(update))
        self._directory = directory.absolute()
        self._update = int(update)
        self._tracing = False

    def next_update(self, update: int) -> int | None:
        return self._update - 1 if update < self._update - 1 else self._update

    def on_start(self, run: Run, state: TrainState) -> None:
        self._begin_before(run.update + 1)

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        self.close()
        self._begin_before(run.update + 1)

    def close(self) -> None:
        if self._tracing:
            self._tracing = False
            self._try(jax.profiler.stop_trace)

    def _begin_before(self, update: int) -> None:
        if update == self._update:
            self._tracing = self._try(
                lambda: jax.profiler.start_trace(self._directory, create_perfetto_trace=True)
            )

    def _try(self, act: Callable[[], None]) -> bool:
        """Calls ``act`` and returns whether it succeeded; a failure only warns."""
        try:
            act()
        # The profiler raises many classes of errors, such as on a full disk.
        except Exception as error:
            what = f"cannot trace update {self._update} into {self._directory}"
            warn(f"{what}: {first_line(error)}")
            return False
        return True
