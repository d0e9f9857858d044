"""Environments: the protocol of reset and step, and batches of environments.

In: a key, a state and an action. Out: the next state, and a :class:`TimeStep` with the mask of the
next action. :class:`VectorEnv` runs a batch of copies of an environment. :func:`check_env` tests
whether an environment obeys the protocol's laws. :mod:`~ppo_mask.envs.probes` are small
environments with known answers. :mod:`~ppo_mask.envs.actions` defines actions, and
:mod:`~ppo_mask.envs.drawing` pictures of states and of episodes.
"""

from ppo_mask.errors import ProtocolError

from . import actions, drawing, probes
from ._check import check_env
from ._env import AbstractEnv, ArrayInfo, Next, TimeStep, declared_info
from ._host import AbstractHostEnv, host_env_in
from ._multitask import MultiTask
from ._shapes import Shapes, require_env, shapes_of, trace_call
from ._vector import VectorEnv, VectorState, VectorTimeStep
from ._wrappers import TimeLimit
from .actions import Actions

__all__ = [
    "AbstractEnv",
    "AbstractHostEnv",
    "Actions",
    "ArrayInfo",
    "MultiTask",
    "Next",
    "ProtocolError",
    "Shapes",
    "TimeLimit",
    "TimeStep",
    "VectorEnv",
    "VectorState",
    "VectorTimeStep",
    "actions",
    "check_env",
    "declared_info",
    "drawing",
    "host_env_in",
    "probes",
    "require_env",
    "shapes_of",
    "trace_call",
]
