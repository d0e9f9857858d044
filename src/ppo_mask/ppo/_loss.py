"""PPO's loss: the clipped surrogate, the value's error and the entropy bonus."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Scalar

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import AbstractActorCritic, Memory, forward
from ppo_mask.ppo._config import PPOConfig


class Batch(eqx.Module):
    """What is learned from: a rollout, with axes [steps, envs, …], or rows of one.

    Attributes:
        observation: what was acted on, as in :class:`~ppo_mask.ppo.Transition`.
        action_mask: likewise.
        action: what was done.
        log_prob: of the action, under the policy that drew it.
        value: estimate at that time.
        advantage: how much better the action was than that.
        return_: ``value + advantage``, the value's target.
        memory: what a recurrent model needs to know beside; None if it is none. A row is then a
            whole rollout of one environment: in place of [steps, envs, …] axes are [1, envs, steps,
            …], and in place of [rows, …] they are [rows, steps, …].
    """

    observation: ArrayTree
    action_mask: Bool[Array, "*batch actions"]
    action: Int[Array, "*batch"]
    log_prob: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    advantage: Float[Array, "*batch"]
    return_: Float[Array, "*batch"]
    memory: Memory | None = None


def ppo_loss(
    network: AbstractActorCritic, batch: Batch, config: PPOConfig
) -> tuple[Scalar, dict[str, Scalar]]:
    """The clipped surrogate, the value's error and the entropy bonus, and figures about them.

    Takes the advantages as they are: :func:`~ppo_mask.ppo.update` has standardized them over the
    minibatch.

    Args:
        network: the model, without its features if it has some: those are in the batch already.
        batch: what to learn from.
        config: hyperparameters.

    Returns:
        What the gradient is taken of, a mean over the batch; and metrics by name: ``total_loss``,
        ``pg_loss``, ``vf_loss``, ``entropy``, ``approx_kl`` and ``clip_frac``, which
        :class:`~ppo_mask.ppo.UpdateDiagnostics` describes.
    """
    distribution, value = forward(network, batch.observation, batch.action_mask, batch.memory)
    log_prob = vmap_axes(lambda d, a: d.log_prob(a), value.ndim)(distribution, batch.action)
    entropy = vmap_axes(lambda d: d.entropy(), value.ndim)(distribution).mean()

    # The policy.
    log_ratio = log_prob - batch.log_prob
    ratio = jnp.exp(log_ratio)
    clipped_ratio = jnp.clip(ratio, 1 - config.clip_eps, 1 + config.clip_eps)
    pg_loss = -jnp.minimum(ratio * batch.advantage, clipped_ratio * batch.advantage).mean()

    # The value.
    error = jnp.square(value - batch.return_)
    if config.clip_value:
        moved = jnp.clip(value - batch.value, -config.clip_eps, config.clip_eps)
        error = jnp.maximum(error, jnp.square(batch.value + moved - batch.return_))
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
    """The function, mapped over so many leading axes of its arguments."""
    return function if axes == 0 else jax.vmap(vmap_axes(function, axes - 1))
