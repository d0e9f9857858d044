"""Callbacks, which a run calls between chunks of updates.

In: the run, its state and its log lines. Out: a console table, files, checkpoints, warnings. Each
callback is a :class:`~ppo_mask.training.Callback`, and works without the runner.
"""

from ._console import ConsoleLog
from ._evaluator import Evaluator
from ._health_checks import CHECKS, Check, HealthChecks
from ._json_lines import JsonLines
from ._profiler import Profiler
from ._saver import Saver
from ._tensorboard import TensorBoard
from ._wandb import WandB

__all__ = [
    "CHECKS",
    "Check",
    "ConsoleLog",
    "Evaluator",
    "HealthChecks",
    "JsonLines",
    "Profiler",
    "Saver",
    "TensorBoard",
    "WandB",
]
