"""Training: a run of many updates, its metrics, and its callbacks.

In: an environment and a network. :class:`Trainer` runs compiled chunks of updates, and calls the
callbacks between two chunks. Out: a :class:`TrainState`, and metrics on the way. :func:`evaluate`
plays episodes; :func:`train_seeds` trains several seeds in one program. A :data:`Curriculum`
changes the environment during a run; a :data:`Schedule` changes the hyperparameters.
"""

from ._callback import Callback, History, LogRecord, Progress, Run
from ._curriculum import AbstractCurriculum, Curriculum, Phases, Schedule, SelfPlay, as_curriculum
from ._evaluate import evaluate
from ._health import all_healthy, describe
from ._loop import AbstractTrainer, acknowledge_stop, run_loop
from ._lower import lower_chunk, traced_ahead
from ._metrics import Metric, add_update, empty_totals, summarize
from ._names import PREFIXES, check_metric_names
from ._seeds import init_seeds, select_seed, train_seeds
from ._state import TrainState, copy_state, place_state
from ._trainer import Trainer, TrainingError, run_chunk

__all__ = [
    "PREFIXES",
    "AbstractCurriculum",
    "AbstractTrainer",
    "Callback",
    "Curriculum",
    "History",
    "LogRecord",
    "Metric",
    "Phases",
    "Progress",
    "Run",
    "Schedule",
    "SelfPlay",
    "TrainState",
    "Trainer",
    "TrainingError",
    "acknowledge_stop",
    "add_update",
    "all_healthy",
    "as_curriculum",
    "check_metric_names",
    "copy_state",
    "describe",
    "empty_totals",
    "evaluate",
    "init_seeds",
    "lower_chunk",
    "place_state",
    "run_chunk",
    "run_loop",
    "select_seed",
    "summarize",
    "traced_ahead",
    "train_seeds",
]
