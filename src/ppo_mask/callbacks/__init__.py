"""Callbacks: what looks at a run between two chunks of updates.

In: the run, its state and its log lines. Out: a console table, files, checkpoints, warnings. Each
is a :class:`~ppo_mask.training.Callback`, and works without the runner.
"""

from ._console import ConsoleLog as ConsoleLog
from ._console import print_banner as print_banner
from ._evaluator import Evaluator as Evaluator
from ._health_checks import CHECKS as CHECKS
from ._health_checks import Check as Check
from ._health_checks import HealthChecks as HealthChecks
from ._json_lines import JsonLines as JsonLines
from ._profiler import Profiler as Profiler
from ._saver import Saver as Saver
from ._tensorboard import TensorBoard as TensorBoard
from ._uploader import Uploader as Uploader
from ._wandb import WandB as WandB
from ._wandb import log_in as log_in

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
    "Uploader",
    "WandB",
    "log_in",
    "print_banner",
]
