"""Generalized advantage estimation (Schulman et al. 2016, arXiv:1506.02438)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float


def estimate_advantages(
    reward: Float[Array, "steps envs"],
    value: Float[Array, "steps envs"],
    next_value: Float[Array, "steps envs"],
    terminated: Bool[Array, "steps envs"],
    truncated: Bool[Array, "steps envs"],
    gamma: float | Float[Array, ""],
    gae_lambda: float | Float[Array, ""],
) -> Float[Array, "steps envs"]:
    """Estimates advantages: exponentially weighted sums of temporal differences.

    A terminal state has the value 0; the last state of a truncated episode has the value
    ``next_value``. Where ``terminated`` and ``truncated`` are both True, the state counts as
    terminal. Sums stop at the end of an episode.

    Args:
        reward: the reward of each step.
        value: estimate for the state in which the step was taken.
        next_value: estimate for the state that the step led to, before any reset. The estimate for
            a terminal state is not used.
        terminated: the step ended its episode in a terminal state.
        truncated: the step's episode was cut off.
        gamma: discount per step.
        gae_lambda: decay of the temporal differences' weights, on top of ``gamma``.

    Returns:
        The advantage of each step's action, in units of the reward.
    """
    reward, value, next_value = (x.astype(jnp.float32) for x in (reward, value, next_value))
    delta = reward + gamma * jnp.where(terminated, 0, next_value) - value
    decay = jnp.where(terminated | truncated, 0, gamma * gae_lambda)

    def backwards(later: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
        delta, decay = step
        advantage = delta + decay * later
        return advantage, advantage

    _, advantages = jax.lax.scan(backwards, jnp.zeros_like(delta[0]), (delta, decay), reverse=True)
    return advantages
