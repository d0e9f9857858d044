"""Proximal policy optimization: one update, step by step.

In: a :class:`LearnerState` and a :class:`~ppo_mask.envs.VectorEnv`. :func:`collect` acts,
:func:`estimate_advantages` rates the actions, and gradient steps minimize :func:`ppo_loss`.
Out: the next state, the rollout, and :class:`UpdateDiagnostics`.
"""

from ._config import MAX_COUNT, REFERENCE_BATCH, RULES, PPOConfig, Rules, Scaling
from ._gae import estimate_advantages
from ._loss import Batch, ppo_loss
from ._minibatches import cache_sized_parts, can_split, check_devices, gather_rows, shuffle_rows
from ._reward_scaler import RewardScaler
from ._rollout import (
    Decision,
    RolloutState,
    Transition,
    bootstrap_values,
    collect,
    next_rollout_state,
    start_rollout,
)
from ._update import (
    Algorithm,
    LearnerState,
    UpdateDiagnostics,
    estimate,
    init_learner,
    learn,
    update,
)

__all__ = [
    "MAX_COUNT",
    "REFERENCE_BATCH",
    "RULES",
    "Algorithm",
    "Batch",
    "Decision",
    "LearnerState",
    "PPOConfig",
    "RewardScaler",
    "RolloutState",
    "Rules",
    "Scaling",
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
