"""The runner: from a command line to a run.

In: a :class:`Task` (environment, networks, metrics) and the words of a command line. Out: a run
with its folder, logs and checkpoints, and an exit code. A program is
``raise SystemExit(main(task, defaults))``.
"""

from ._flags import parse_flags as parse_flags
from ._main import enable_compilation_cache as enable_compilation_cache
from ._main import execute as execute
from ._main import main as main
from ._phases import Phases as Phases
from ._plan import make_plan as make_plan
from ._schema import Structured as Structured
from ._schema import did_you_mean as did_you_mean
from ._schema import finite_number as finite_number
from ._schema import load_yaml as load_yaml
from ._schema import replace as replace
from ._schema import setting as setting
from ._settings import REFERENCE_BATCH as REFERENCE_BATCH
from ._settings import LoggingSettings as LoggingSettings
from ._settings import NetworkSettings as NetworkSettings
from ._settings import RunConfig as RunConfig
from ._settings import Scaling as Scaling
from ._settings import TrainingSettings as TrainingSettings
from ._settings import resolve as resolve
from ._settings import scale as scale
from ._task import Task as Task
from ._task import mlp_for as mlp_for

__all__ = [
    "REFERENCE_BATCH",
    "LoggingSettings",
    "NetworkSettings",
    "Phases",
    "RunConfig",
    "Scaling",
    "Structured",
    "Task",
    "TrainingSettings",
    "did_you_mean",
    "enable_compilation_cache",
    "execute",
    "finite_number",
    "load_yaml",
    "main",
    "make_plan",
    "mlp_for",
    "parse_flags",
    "replace",
    "resolve",
    "scale",
    "setting",
]
