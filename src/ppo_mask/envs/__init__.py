"""Environments: the protocol of reset and step, and many environments side by side.

In: a key and an action. Out: a :class:`TimeStep`, with the mask of the next action.
:class:`VectorEnv` makes a batch of an environment and has the library's only auto-reset.
:func:`check_env` tests an environment for the protocol's laws; :mod:`~ppo_mask.envs.probes` are
small ones whose answers are known on paper.
"""

from ppo_mask.errors import ProtocolError

from . import probes
from ._check import check_env
from ._curriculum import (
    AbstractAdaptiveCurriculum,
    Curriculum,
    Schedule,
    env_at,
    first_memory,
    next_memory,
    renewed_memory,
)
from ._env import AbstractEnv, AbstractSelfResettingEnv, Next, TimeStep
from ._host import AbstractHostEnv, host_env_in
from ._multitask import MultiTask
from ._self_play import SelfPlay
from ._shapes import Shapes, shapes_of
from ._vector import VectorEnv, VectorState, VectorTimeStep
from ._wrappers import FlatObservation, TimeLimit, flatten

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
    "SelfPlay",
    "Shapes",
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
    "renewed_memory",
    "shapes_of",
]
