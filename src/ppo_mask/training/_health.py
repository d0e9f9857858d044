"""Checks in the compiled loop whether a run can continue, and describes problems in Python."""

import functools
import operator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int, Scalar

from ppo_mask.acting import Transition
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.networks import Model
from ppo_mask.training._state import TrainState


class Health(eqx.Module):
    """Whether each part of an update was healthy. Each ``vmap`` adds an axis to all fields.

    Attributes:
        allowed: whether every mask allowed an action (if MultiDiscrete, one in every part).
        path: where one did not, the choices of the parts before; see ``Actions.path_to_empty``.
            All 1 if every mask allowed one, since what is well is true in all fields.
        observation: whether all observations were finite.
        reward: whether all rewards were finite.
        losses: whether each of the algorithm's metrics was finite, after one that always is.
        parameters: whether all of the model's arrays were finite.
    """

    allowed: Bool[Array, "*runs"]
    path: Int[Array, "*runs parts"]
    observation: Bool[Array, "*runs"]
    reward: Bool[Array, "*runs"]
    losses: Bool[Array, "*runs metrics"]
    parameters: Bool[Array, "*runs"]

    @property
    def good(self) -> Bool[Array, "*runs"]:
        """Whether the run can continue."""
        parts = self.allowed, self.observation, self.reward, self.parameters
        return functools.reduce(operator.and_, parts, self.losses.all(axis=-1))


def all_healthy(state: TrainState, num_actions: NumActions) -> Health:
    """Makes a :class:`Health` without problems, for the time before the first update."""
    true, losses = jnp.array(True), jnp.ones(1 + len(state.totals.layout.learned), bool)
    path = jnp.ones(len(Actions.of(num_actions).sizes), jnp.int32)
    return Health(true, path, true, true, losses, true)


def examine(
    state: TrainState, transitions: Transition, metrics: dict[str, Scalar], num_actions: NumActions
) -> Health:
    """Checks an update, given the state after it, its rollout and the algorithm's metrics."""
    # Few kernels compile faster: parameters as one array, and sums that have each metric in them.
    parameters = all_finite(ravel_pytree(eqx.filter(state.model, eqx.is_inexact_array))[0])
    learned = (metrics[name].astype(jnp.float32) for name in state.totals.layout.learned)
    losses = jnp.isfinite(jnp.stack([jnp.float32(0), *learned]))
    actions, decision = Actions.of(num_actions), transitions.decision
    allowed = actions.any_allowed(decision.action_mask).all()
    path = jnp.ones(len(actions.sizes), jnp.int32)
    if actions.has_parts:
        find = actions.path_to_empty
        path = jax.lax.cond(allowed, lambda *_: path, find, decision.action_mask, decision.action)
    reward = all_finite(transitions.reward)
    true = jnp.array(True)
    health = Health(allowed, path, true, reward, losses, parameters)
    # Most of a rollout is observations, so they are checked only if something else is wrong.
    # The last observations of truncated episodes are seen only in their values.
    seen = decision.observation, state.rollout.observation, transitions.final_value
    observation = jax.lax.cond(health.good, lambda _: true, all_finite, seen)
    return eqx.tree_at(lambda h: h.observation, health, observation)


def describe_health(health: Health, state: TrainState, num_actions: NumActions) -> str:
    """Describes the first problem and its remedy, in one line.

    Args:
        health: the health of an update, which is not good.
        state: the run's state after this update.
        num_actions: the environment's number of actions.
    """
    health = jax.device_get(health)
    if not np.all(health.allowed):
        path = np.reshape(health.path, (health.allowed.size, -1))[health.allowed.argmin()]
        return f"{describe_empty_mask(num_actions, path)} (ppo_mask.envs.check_env finds out where)"
    for name, good in (("an observation", health.observation), ("a reward", health.reward)):
        if not np.all(good):
            return f"the environment gave {name} that is not finite; look for where it divides"
    names = ["", *state.totals.layout.learned]
    losses = [name for name, good in zip(names, health.losses, strict=True) if not good]
    all_parameters = _parameters(state.model)
    parameters = _not_finite(all_parameters)
    parts = ", ".join(losses)
    if parameters:
        number = f"{len(parameters)} of {len(all_parameters)} parameters"
        parts += f"{' and ' if parts else ''}{number} (the first: {parameters[0]})"
    return (
        f"not finite: {parts}; observations and rewards are, so try a lower learning rate, and "
        "look for rewards of thousands and more"
    )


def describe_not_finite(model: Model) -> str:
    """Returns the message for an evaluation in which something was not finite."""
    what = "an observation, a reward, or what the network makes of them"
    if parameters := _not_finite(_parameters(model)):
        what = f"{len(parameters)} parameters (the first: {parameters[0]})"
    return f"not finite: {what}"


def describe_empty_mask(num_actions: NumActions, path: np.ndarray | None = None) -> str:
    """Returns the message for a mask that allowed no action, in the part that ``path`` leads to."""
    actions = Actions.of(num_actions)
    where, each = (f" in a part, of {actions}", " in each part") if actions.has_parts else ("", "")
    where = where if path is None else actions.describe_path(path)
    return f"an action mask was all False{where}; the environment must always allow an action{each}"


def _parameters(model: Model) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(eqx.filter(model, eqx.is_inexact_array))
    return {jax.tree_util.keystr(path, simple=True, separator="."): x for path, x in leaves}


def _not_finite(named: dict[str, Array]) -> list[str]:
    return [name for name, x in named.items() if not np.isfinite(x).all()]


def all_finite(tree: Any) -> Bool[Array, ""]:
    """Whether all floats of a tree, which may also hold functions, are finite."""
    finite = jnp.array(True)
    for leaf in jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array)):
        finite &= jnp.isfinite(leaf).all()
    return finite
