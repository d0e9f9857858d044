"""PPO's loss: the clipped surrogate, the value's error and the entropy bonus."""

from typing import Any

import jax.numpy as jnp
from jaxtyping import Scalar

from ppo_mask.networks import Model, forward, vmap_axes
from ppo_mask.training import Batch


def ppo_loss(model: Model, batch: Batch, settings: Any) -> tuple[Scalar, dict[str, Scalar]]:
    """Computes PPO's loss (Schulman et al. 2017, arXiv:1707.06347) and its metrics.

    Args:
        model: the model, with the parameters of which the gradient is taken.
        batch: rows of a rollout, whose advantages are standardized over the minibatch, unless it
            has a single row.
        settings: the algorithm, of which ``clip_eps``, ``clip_value``, ``vf_coef`` and ``ent_coef``
            are used.

    Returns:
        The loss, a mean over the batch; and metrics by name: ``total_loss``,
        ``pg_loss``, ``vf_loss``, ``entropy``, ``approx_kl`` and ``clip_frac``, which
        :class:`~ppo_mask.ppo.PPO` describes.
    """
    old = batch.decision
    distribution, value = forward(model, old.observation, old.action_mask, batch.memory)
    distribution = vmap_axes(lambda d, a: d.given(a), value.ndim)(distribution, old.action)
    log_prob = vmap_axes(lambda d, a: d.log_prob(a), value.ndim)(distribution, old.action)
    entropy = vmap_axes(lambda d: d.entropy(), value.ndim)(distribution).mean()

    # The policy.
    log_ratio = log_prob - old.log_prob
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - settings.clip_eps, 1 + settings.clip_eps)
    pg_loss = -jnp.minimum(ratio * batch.advantage, clipped_ratio * batch.advantage).mean()

    # The value.
    error = jnp.square(value - batch.return_)
    if settings.clip_value:
        moved = jnp.clip(value - old.value, -settings.clip_eps, settings.clip_eps)
        error = jnp.maximum(error, jnp.square(old.value + moved - batch.return_))
    vf_loss = 0.5 * error.mean()

    total_loss = pg_loss + settings.vf_coef * vf_loss - settings.ent_coef * entropy
    return total_loss, {
        "total_loss": total_loss,
        "pg_loss": pg_loss,
        "vf_loss": vf_loss,
        "entropy": entropy,
        "approx_kl": (jnp.expm1(log_ratio) - log_ratio).mean(),
        "clip_frac": (jnp.abs(ratio - 1) > settings.clip_eps).astype(jnp.float32).mean(),
    }
