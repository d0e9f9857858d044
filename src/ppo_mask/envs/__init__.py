"""Environments: the protocol of reset and step, and batches of environments.

In: a key, a state and an action. Out: the next state, and a :class:`TimeStep` with the mask of the
next action. :class:`VectorEnv` runs a batch of copies of an environment. :func:`check_env` tests
whether an environment obeys the protocol's laws. :mod:`~ppo_mask.envs.probes` are small
environments with known answers. :mod:`~ppo_mask.envs.actions` defines actions, and
:mod:`~ppo_mask.envs.drawing` pictures of states and of episodes.
"""

from . import actions, drawing, probes
from ._check import check_env
from ._env import AbstractEnv, ArrayInfo, Next, TimeStep
from ._multitask import MultiTask
from ._vector import VectorEnv, VectorState, VectorTimeStep
from ._wrappers import TimeLimit
from .actions import Actions

__all__ = [
    "AbstractEnv",
    "Actions",
    "ArrayInfo",
    "MultiTask",
    "Next",
    "TimeLimit",
    "TimeStep",
    "VectorEnv",
    "VectorState",
    "VectorTimeStep",
    "actions",
    "check_env",
    "drawing",
    "probes",
]
