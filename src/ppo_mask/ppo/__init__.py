"""Proximal policy optimization, an algorithm.

:class:`PPO` holds the settings, and learns from a rollout: it rates the actions with
:func:`estimate_advantages`, and takes gradient steps that minimize :func:`ppo_loss`.
"""

from ._gae import estimate_advantages
from ._loss import ppo_loss
from ._ppo import PPO, PPOState

__all__ = ["PPO", "PPOState", "estimate_advantages", "ppo_loss"]
