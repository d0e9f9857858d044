"""The runner: from a command line to a run.

In: a :class:`Task` (environment, networks, metrics) and a command line. Out: a run with its folder,
logs and checkpoints, and an exit code. A training script ends with
``raise SystemExit(main(task, defaults))``.
"""

from . import commands
from ._main import enable_compilation_cache, execute, main
from ._plan import make_plan
from ._schema import Setting, Structured, did_you_mean, finite_number, load_yaml, setting, settings
from ._settings import CheckpointSettings, LoggingSettings, NetworkSettings, RunConfig, RunSettings
from ._task import Task, default_network, make_parts, make_trainer
from .commands import TrainedRun, load_run

__all__ = [
    "CheckpointSettings",
    "LoggingSettings",
    "NetworkSettings",
    "RunConfig",
    "RunSettings",
    "Setting",
    "Structured",
    "Task",
    "TrainedRun",
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
    "setting",
    "settings",
]
