"""Checks in the compiled loop whether a run can continue, and describes problems in Python."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from ppo_mask.envs.actions import NumActions, allows_action, describe_actions
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.ppo import LearnerState, Transition, UpdateDiagnostics

_LARGEST_DEVIATION = 1e15
"""Largest healthy standard deviation of returns: float32 can square 1e19, and has seven digits."""


class Health(eqx.Module):
    """Whether each part of an update was healthy. Each ``vmap`` adds an axis to all fields.

    Attributes:
        allowed: whether every mask allowed an action (if MultiDiscrete, one in every part).
        observation: whether all observations were finite.
        reward: whether all rewards were finite.
        reward_scale: False if rewards are divided by so large a standard deviation that usual
            rewards vanish.
        losses: whether each of the update's metrics was finite, by the names of
            :class:`~ppo_mask.ppo.UpdateDiagnostics`.
        parameters: whether each array of the model was finite, by its path in the model.
    """

    allowed: Bool[Array, "*runs"]
    observation: Bool[Array, "*runs"]
    reward: Bool[Array, "*runs"]
    reward_scale: Bool[Array, "*runs"]
    losses: dict[str, Bool[Array, "*runs"]]
    parameters: dict[str, Bool[Array, "*runs"]]

    @property
    def good(self) -> Bool[Array, "*runs"]:
        """Whether the run can continue."""
        good = self.allowed
        for part in jax.tree.leaves(self):
            good &= part
        return good


def all_healthy(model: AbstractActorCritic, diagnostics: UpdateDiagnostics) -> Health:
    """Makes a :class:`Health` without problems, for the time before the first update."""
    true = jnp.array(True)
    parameters = dict.fromkeys(_parameters(model), true)
    return Health(true, true, true, true, dict.fromkeys(diagnostics.named, true), parameters)


def examine(
    learner: LearnerState,
    transitions: Transition,
    diagnostics: UpdateDiagnostics,
    num_actions: NumActions,
) -> Health:
    """Checks an update.

    Args:
        learner: the learner's state after the update.
        transitions: the update's rollout.
        diagnostics: the update's metrics.
        num_actions: the environment's number of actions.

    Returns:
        Whether each part was healthy.
    """
    losses = {name: _finite(x) for name, x in diagnostics.named.items()}
    parameters = {name: _finite(x) for name, x in _parameters(learner.model).items()}
    allowed = allows_action(transitions.decision.action_mask, num_actions).all()
    reward = _finite(transitions.reward)
    true, scaler = jnp.array(True), learner.reward_scaler
    reward_scale = true if scaler is None else scaler.moments.deviation < _LARGEST_DEVIATION
    health = Health(allowed, true, reward, reward_scale, losses, parameters)
    # Most of a rollout is observations, so they are checked only if something else is wrong.
    observations = (transitions.decision.observation, learner.rollout.observation)
    observation = jax.lax.cond(health.good, lambda _: true, _finite, observations)
    return eqx.tree_at(lambda h: h.observation, health, observation)


def describe(health: Health, num_actions: NumActions) -> str | None:
    """Describes the first problem and its remedy, in one line; None if there is no problem.

    Args:
        health: the health of an update.
        num_actions: the environment's number of actions.
    """
    health = jax.device_get(health)
    if all(np.all(part) for part in jax.tree.leaves(health)):
        return None
    if not np.all(health.allowed):
        return f"{describe_empty_mask(num_actions)} (ppo_mask.envs.check_env finds out where)"
    for name, good in (("an observation", health.observation), ("a reward", health.reward)):
        if not np.all(good):
            return f"the environment gave {name} that is not finite; look for where it divides"
    if not np.all(health.reward_scale):
        return (
            "normalize_rewards divides by the deviation of the returns, which one reward has made "
            f"larger than {_LARGEST_DEVIATION:.0e}, so all others are lost; scale or clip rewards "
            "in the environment"
        )
    losses = [name for name, good in health.losses.items() if not np.all(good)]
    parameters = [name for name, good in health.parameters.items() if not np.all(good)]
    if any(".moments." in f".{name}" for name in parameters):
        return (
            "normalize_observations cannot hold the variance of an observation, which is too large "
            "to be squared in float32; scale or clip observations in the environment"
        )
    parts = ", ".join(losses)
    if parameters:
        number = f"{len(parameters)} of {len(health.parameters)} parameters"
        parts += f"{' and ' if parts else ''}{number} (the first: {parameters[0]})"
    return (
        f"not finite: {parts}; observations and rewards are, so try a lower learning rate, and "
        "look for rewards of thousands and more"
    )


def describe_empty_mask(num_actions: NumActions) -> str:
    """Returns the message for a mask that allowed no action."""
    if isinstance(num_actions, int):
        return "an action mask was all False; the environment must always allow an action"
    return (
        f"an action mask was all False in a part, of {describe_actions(num_actions)}; the "
        "environment must always allow an action in each part"
    )


def _parameters(model: AbstractActorCritic) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_inexact_array))
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def _finite(tree: ArrayTree) -> Bool[Array, ""]:
    finite = jnp.array(True)
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)):
        finite &= jnp.isfinite(leaf).all()
    return finite
