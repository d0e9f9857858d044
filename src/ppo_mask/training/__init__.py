"""Training: a run of many updates, its metrics, and the callbacks that see them.

In: an environment and a network. :class:`Trainer` runs compiled chunks of updates; between two of
them callbacks look. Out: a :class:`TrainState`, and metrics on the way. :func:`evaluate` plays
episodes; :func:`train_seeds` trains several seeds in one program.
"""

from ._callback import Callback as Callback
from ._callback import LogRecord as LogRecord
from ._callback import Progress as Progress
from ._callback import Run as Run
from ._evaluate import evaluate as evaluate
from ._health import all_healthy as all_healthy
from ._health import describe as describe
from ._history import History as History
from ._metrics import Metric as Metric
from ._metrics import add_update as add_update
from ._metrics import empty_totals as empty_totals
from ._metrics import summarize as summarize
from ._names import check_metric_names as check_metric_names
from ._seeds import init_seeds as init_seeds
from ._seeds import select_seed as select_seed
from ._seeds import train_seeds as train_seeds
from ._state import TrainState as TrainState
from ._state import copy_state as copy_state
from ._state import place_state as place_state
from ._trainer import Trainer as Trainer
from ._trainer import TrainingError as TrainingError
from ._trainer import run_chunk as run_chunk

__all__ = [
    "Callback",
    "History",
    "LogRecord",
    "Metric",
    "Progress",
    "Run",
    "TrainState",
    "Trainer",
    "TrainingError",
    "add_update",
    "all_healthy",
    "check_metric_names",
    "copy_state",
    "describe",
    "empty_totals",
    "evaluate",
    "init_seeds",
    "place_state",
    "run_chunk",
    "select_seed",
    "summarize",
    "train_seeds",
]
