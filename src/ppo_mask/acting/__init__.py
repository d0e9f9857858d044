"""Acting: a model plays in a batch of environments, and what comes of it is a rollout.

In: a model and a :class:`~ppo_mask.envs.VectorEnv`. :func:`collect` acts for some steps. Out: a
:class:`Transition` for each step, and the :class:`RolloutState` for the next rollout. Nothing here
learns, so every algorithm can use it.
"""

from ._reward_scaler import RewardScaler
from ._rollout import (
    Decision,
    RolloutState,
    Transition,
    bootstrap_values,
    collect,
    next_values,
    start_rollout,
)

__all__ = [
    "Decision",
    "RewardScaler",
    "RolloutState",
    "Transition",
    "bootstrap_values",
    "collect",
    "next_values",
    "start_rollout",
]
