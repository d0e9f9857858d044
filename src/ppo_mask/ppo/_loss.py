"""PPO's loss: the clipped surrogate, the value's error and the entropy bonus."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ppo_mask.networks import AbstractActorCritic, Memory, forward
from ppo_mask.ppo._config import PPOConfig
from ppo_mask.ppo._rollout import Decision


class Batch(eqx.Module):
    """Training data: a whole rollout, or some of its rows.

    A row is one step of one environment. The axes are [steps, envs, …] for a rollout, and [rows, …]
    for rows.

    For a recurrent model, a row is all steps of one environment. The axes are [1, envs, steps, …]
    for a rollout, and [rows, steps, …] for rows.

    Attributes:
        decision: the model's inputs, action and value at each step.
        advantage: an estimate of how much better the action was than ``decision.value``.
        return_: the value's target, ``decision.value + advantage``.
        memory: hidden states and ends of episodes; None for a model without a hidden state.
    """

    decision: Decision
    advantage: Float[Array, "*batch"]
    return_: Float[Array, "*batch"]
    memory: Memory | None = None


def ppo_loss(
    network: AbstractActorCritic, batch: Batch, config: PPOConfig
) -> tuple[Scalar, dict[str, Scalar]]:
    """Computes PPO's loss (Schulman et al. 2017, arXiv:1707.06347) and its metrics.

    Args:
        network: the trainable network, without the model's feature extractor.
        batch: rows of a rollout, with the network's inputs in place of observations.
            :func:`~ppo_mask.ppo.update` has standardized the advantages over each minibatch that
            has more than one row.
        config: hyperparameters.

    Returns:
        The loss, a mean over the batch; and metrics by name: ``total_loss``,
        ``pg_loss``, ``vf_loss``, ``entropy``, ``approx_kl`` and ``clip_frac``, which
        :class:`~ppo_mask.ppo.UpdateDiagnostics` describes.
    """
    old = batch.decision
    distribution, value = forward(network, old.observation, old.action_mask, batch.memory)
    log_prob = vmap_axes(lambda d, a: d.log_prob(a), value.ndim)(distribution, old.action)
    entropy = vmap_axes(lambda d: d.entropy(), value.ndim)(distribution).mean()

    # The policy.
    log_ratio = log_prob - old.log_prob
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - config.clip_eps, 1 + config.clip_eps)
    pg_loss = -jnp.minimum(ratio * batch.advantage, clipped_ratio * batch.advantage).mean()

    # The value.
    error = jnp.square(value - batch.return_)
    if config.clip_value:
        moved = jnp.clip(value - old.value, -config.clip_eps, config.clip_eps)
        error = jnp.maximum(error, jnp.square(old.value + moved - batch.return_))
    vf_loss = 0.5 * error.mean()

    total_loss = pg_loss + config.vf_coef * vf_loss - config.ent_coef * entropy
    return total_loss, {
        "total_loss": total_loss,
        "pg_loss": pg_loss,
        "vf_loss": vf_loss,
        "entropy": entropy,
        "approx_kl": (jnp.expm1(log_ratio) - log_ratio).mean(),
        "clip_frac": (jnp.abs(ratio - 1) > config.clip_eps).astype(jnp.float32).mean(),
    }


def vmap_axes(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """Maps a function over the first ``axes`` axes of its arguments."""
    return function if axes == 0 else jax.vmap(vmap_axes(function, axes - 1))
