"""Training: a run of many updates, and what can be known of it.

In: an environment and a network. :class:`Trainer` runs compiled chunks of updates; between two of
them callbacks look. Out: a :class:`TrainState`, and metrics on the way. :func:`evaluate` plays
episodes; :func:`train_seeds` trains several seeds in one program.
"""

from ._callback import Callback as Callback
from ._callback import LogRecord as LogRecord
from ._callback import Progress as Progress
from ._callback import Run as Run
from ._evaluate import evaluate as evaluate
from ._health import describe as describe
from ._health import healthy as healthy
from ._history import History as History
from ._metrics import Metric as Metric
from ._metrics import add_update as add_update
from ._metrics import no_updates as no_updates
from ._metrics import summarize as summarize
from ._seeds import init_seeds as init_seeds
from ._seeds import pick as pick
from ._seeds import train_seeds as train_seeds
from ._state import TrainState as TrainState
from ._state import copied as copied
from ._state import placed as placed
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
    "copied",
    "describe",
    "evaluate",
    "healthy",
    "init_seeds",
    "no_updates",
    "pick",
    "placed",
    "run_chunk",
    "summarize",
    "train_seeds",
]
