"""The runner: from a command line to a run.

In: a :class:`Task` (environment, networks, metrics) and the words of a command line. Out: a run
with its folder, logs and checkpoints, and an exit code. A program is
``raise SystemExit(main(task, defaults))``.
"""

from . import commands
from ._flags import parse_flags
from ._main import enable_compilation_cache, execute, main
from ._phases import Phases
from ._plan import make_plan
from ._schema import Structured, did_you_mean, finite_number, load_yaml, replace, setting
from ._settings import (
    REFERENCE_BATCH,
    LoggingSettings,
    NetworkSettings,
    RunConfig,
    Scaling,
    TrainingSettings,
    resolve,
    scale,
)
from ._task import Task, default_network, make_parts, make_trainer
from .commands import TrainedRun, load_run

__all__ = [
    "REFERENCE_BATCH",
    "LoggingSettings",
    "NetworkSettings",
    "Phases",
    "RunConfig",
    "Scaling",
    "Structured",
    "Task",
    "TrainedRun",
    "TrainingSettings",
    "commands",
    "default_network",
    "did_you_mean",
    "enable_compilation_cache",
    "execute",
    "finite_number",
    "load_run",
    "load_yaml",
    "main",
    "make_parts",
    "make_plan",
    "make_trainer",
    "parse_flags",
    "replace",
    "resolve",
    "scale",
    "setting",
]
