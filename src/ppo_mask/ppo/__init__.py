"""Proximal policy optimization: one update, in the order in which it happens.

In: a :class:`LearnerState` and a :class:`~ppo_mask.envs.VectorEnv`. :func:`collect` acts,
:func:`generalized_advantages` says how good that was, :func:`ppo_loss` is what is learned from it.
Out: the next state, the rollout, and :class:`UpdateDiagnostics`.
"""

from ._config import PRECISIONS as PRECISIONS
from ._config import PPOConfig as PPOConfig
from ._gae import generalized_advantages as generalized_advantages
from ._loss import Batch as Batch
from ._loss import ppo_loss as ppo_loss
from ._minibatches import can_split as can_split
from ._minibatches import check_devices as check_devices
from ._minibatches import of_rows as of_rows
from ._minibatches import shuffled as shuffled
from ._minibatches import small_parts as small_parts
from ._reward_scaler import RewardScaler as RewardScaler
from ._rollout import RolloutState as RolloutState
from ._rollout import Transition as Transition
from ._rollout import collect as collect
from ._rollout import following as following
from ._rollout import start as start
from ._rollout import values as values
from ._update import Algorithm as Algorithm
from ._update import LearnerState as LearnerState
from ._update import UpdateDiagnostics as UpdateDiagnostics
from ._update import estimate as estimate
from ._update import init_learner as init_learner
from ._update import learn as learn
from ._update import update as update

__all__ = [
    "PRECISIONS",
    "Algorithm",
    "Batch",
    "LearnerState",
    "PPOConfig",
    "RewardScaler",
    "RolloutState",
    "Transition",
    "UpdateDiagnostics",
    "can_split",
    "check_devices",
    "collect",
    "estimate",
    "following",
    "generalized_advantages",
    "init_learner",
    "learn",
    "of_rows",
    "ppo_loss",
    "shuffled",
    "small_parts",
    "start",
    "update",
    "values",
]
