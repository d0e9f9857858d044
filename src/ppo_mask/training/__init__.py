"""Training: a run of many updates, its metrics, and its callbacks.

In: an environment, an algorithm and a model. :class:`Trainer` runs compiled chunks of updates,
and calls the callbacks between two chunks. Out: a :class:`TrainState`, and metrics on the way.
:func:`evaluate` plays episodes; :class:`PerSeed` watches several seeds in one program. A
:data:`Curriculum` changes the environment during a run; a :data:`Schedule` changes the algorithm's
numbers. An :class:`AbstractAlgorithm` is what is trained, and how; :func:`shuffle_rows`,
:func:`take_gradient_steps` and their neighbors are parts to make one of.
"""

from ._algorithm import AbstractAlgorithm, At
from ._batch import Batch, make_batch
from ._callback import Callback, History, LogRecord, Progress, Run
from ._curriculum import AbstractCurriculum, Curriculum, Phases, Schedule
from ._evaluate import Estimate, EvaluationResult, estimate, evaluate
from ._gradients import mean_over_steps, take_gradient_steps
from ._lower import lower_chunk
from ._metrics import Metric
from ._minibatches import check_minibatches, gather_rows, rows_per_env, shuffle_rows
from ._rules import Rules, static_setting, traced_setting
from ._seeds import PerSeed, select_seed
from ._self_play import SelfPlay
from ._state import TrainState
from ._tournament import Tournament, play_each
from ._trainer import Trainer, TrainingError

__all__ = [
    "AbstractAlgorithm",
    "AbstractCurriculum",
    "At",
    "Batch",
    "Callback",
    "Curriculum",
    "Estimate",
    "EvaluationResult",
    "History",
    "LogRecord",
    "Metric",
    "PerSeed",
    "Phases",
    "Progress",
    "Rules",
    "Run",
    "Schedule",
    "SelfPlay",
    "Tournament",
    "TrainState",
    "Trainer",
    "TrainingError",
    "check_minibatches",
    "estimate",
    "evaluate",
    "gather_rows",
    "lower_chunk",
    "make_batch",
    "mean_over_steps",
    "play_each",
    "rows_per_env",
    "select_seed",
    "shuffle_rows",
    "static_setting",
    "take_gradient_steps",
    "traced_setting",
]
