"""Environments: the protocol of reset and step, and many environments side by side.

In: a key and an action. Out: a :class:`TimeStep`, with the mask of the next action.
:class:`VectorEnv` makes a batch of an environment and has the library's only auto-reset.
:func:`check_env` tests an environment for the protocol's laws; :mod:`~ppo_mask.envs.probes` are
small ones whose answers are known on paper.
"""

from . import probes as probes
from ._check import ProtocolError as ProtocolError
from ._check import check_env as check_env
from ._curriculum import AbstractAdaptiveCurriculum as AbstractAdaptiveCurriculum
from ._curriculum import Curriculum as Curriculum
from ._curriculum import Schedule as Schedule
from ._curriculum import env_at as env_at
from ._curriculum import first_memory as first_memory
from ._curriculum import next_memory as next_memory
from ._env import AbstractEnv as AbstractEnv
from ._env import AbstractSelfResettingEnv as AbstractSelfResettingEnv
from ._env import Next as Next
from ._env import TimeStep as TimeStep
from ._host import AbstractHostEnv as AbstractHostEnv
from ._host import host_env_in as host_env_in
from ._multitask import MultiTask as MultiTask
from ._vector import VectorEnv as VectorEnv
from ._vector import VectorState as VectorState
from ._vector import VectorTimeStep as VectorTimeStep
from ._wrappers import FlatObservation as FlatObservation
from ._wrappers import TimeLimit as TimeLimit
from ._wrappers import flatten as flatten

__all__ = [
    "AbstractAdaptiveCurriculum",
    "AbstractEnv",
    "AbstractHostEnv",
    "AbstractSelfResettingEnv",
    "Curriculum",
    "FlatObservation",
    "MultiTask",
    "Next",
    "ProtocolError",
    "Schedule",
    "TimeLimit",
    "TimeStep",
    "VectorEnv",
    "VectorState",
    "VectorTimeStep",
    "check_env",
    "env_at",
    "first_memory",
    "flatten",
    "host_env_in",
    "next_memory",
    "probes",
]
