"""A categorical distribution whose mask cannot be forgotten."""

import distreqx.distributions as dist
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.jax_tools import IntScalarLike, number_settings


class MaskedCategorical(eqx.Module):
    """A categorical distribution over the allowed actions of one state.

    An action outside the mask has probability exactly 0, is never drawn, and its logit receives a
    gradient of exactly 0 (Huang and Ontañón 2022, arXiv:2006.14171). All is computed in float32,
    whatever the logits' type.

    Args:
        logits: log-probabilities of all actions, up to a constant.
        mask: True where an action is allowed.

    Raises:
        ValueError: no action is allowed. Only where the mask's values are known, that is outside
            of compiled code; inside it, :class:`ppo_mask.training.Trainer` and
            :func:`ppo_mask.training.evaluate` watch over the masks, at no cost per step.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> distribution = pm.MaskedCategorical(jnp.zeros(4), jnp.array([True, False, True, False]))
        >>> print(distribution.probs)
        [0.5 0.  0.5 0. ]
        >>> int(distribution.sample(jax.random.key(0))) in (0, 2)
        True
    """

    mask: Bool[Array, " actions"]
    _unmasked: dist.Categorical

    def __init__(self, logits: Float[Array, " actions"], mask: Bool[Array, " actions"]):
        if not isinstance(mask, Tracer) and not np.asarray(mask).any():
            raise ValueError("action mask is all False: at least one action must be allowed")
        logits = logits.astype(jnp.float32)
        # Not -inf: differences of infinities are NaN in the gradients of what follows.
        logits = jnp.where(mask, logits, jnp.finfo(jnp.float32).min)
        self.mask = mask
        self._unmasked = dist.Categorical(logits=logits)

    @property
    def probs(self) -> Float[Array, " actions"]:
        """Probabilities; exactly 0 outside the mask."""
        return jnp.where(self.mask, self._unmasked.probs, 0)

    def log_prob(self, action: IntScalarLike) -> Float[Array, ""]:
        """Log-probability; about -3.4e38 for an action outside the mask."""
        return self._unmasked.log_prob(jnp.asarray(action, jnp.int32))

    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats: log n for n equally likely allowed actions."""
        return self._unmasked.entropy()

    def mode(self) -> Int[Array, ""]:
        """The likeliest allowed action, the first among equals."""
        # distreqx's own casts to int8, which is wrong beyond 127 actions.
        logits = jnp.where(self.mask, self._unmasked.logits, -jnp.inf)
        return jnp.argmax(logits).astype(jnp.int32)

    def sample(self, key: Key[Array, ""]) -> Int[Array, ""]:
        """Draws an allowed action, from one uniform number by the inverse of the CDF.

        A probability is met to within 2⁻²³, the uniform number's resolution.
        """
        # Prefix sums may be added up in any order, so that they can differ where the probability is
        # 0 and decrease by a rounding error. Hence the mask here, and the top of the CDF (the last
        # step) counts as above the threshold even where the product below rounds up to it.
        cdf = jnp.where(self.mask, jnp.cumsum(self.probs), 0)
        top = cdf.max()
        with number_settings():  # Of 32 bits, that is.
            draw = jax.random.uniform(key)
        above = (cdf > draw * top) | (cdf >= top)
        return jnp.argmax(self.mask & above).astype(jnp.int32)
