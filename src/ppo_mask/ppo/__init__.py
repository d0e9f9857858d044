"""Proximal policy optimization: one update, in the order in which it happens.

In: a :class:`LearnerState` and a :class:`~ppo_mask.envs.VectorEnv`. :func:`collect` acts,
:func:`estimate_advantages` rates the actions, and gradient steps descend :func:`ppo_loss`.
Out: the next state, the rollout, and :class:`UpdateDiagnostics`.
"""

from ._config import RULES as RULES
from ._config import PPOConfig as PPOConfig
from ._config import Rules as Rules
from ._gae import estimate_advantages as estimate_advantages
from ._loss import Batch as Batch
from ._loss import ppo_loss as ppo_loss
from ._minibatches import ShufflePlan as ShufflePlan
from ._minibatches import cache_sized_parts as cache_sized_parts
from ._minibatches import can_split as can_split
from ._minibatches import check_devices as check_devices
from ._minibatches import gather_rows as gather_rows
from ._minibatches import shuffle_rows as shuffle_rows
from ._reward_scaler import RewardScaler as RewardScaler
from ._rollout import RolloutState as RolloutState
from ._rollout import Transition as Transition
from ._rollout import bootstrap_values as bootstrap_values
from ._rollout import collect as collect
from ._rollout import next_rollout_state as next_rollout_state
from ._rollout import start_rollout as start_rollout
from ._update import Algorithm as Algorithm
from ._update import LearnerState as LearnerState
from ._update import UpdateDiagnostics as UpdateDiagnostics
from ._update import estimate as estimate
from ._update import init_learner as init_learner
from ._update import learn as learn
from ._update import update as update

__all__ = [
    "RULES",
    "Algorithm",
    "Batch",
    "LearnerState",
    "PPOConfig",
    "RewardScaler",
    "RolloutState",
    "Rules",
    "ShufflePlan",
    "Transition",
    "UpdateDiagnostics",
    "bootstrap_values",
    "cache_sized_parts",
    "can_split",
    "check_devices",
    "collect",
    "estimate",
    "estimate_advantages",
    "gather_rows",
    "init_learner",
    "learn",
    "next_rollout_state",
    "ppo_loss",
    "shuffle_rows",
    "start_rollout",
    "update",
]
