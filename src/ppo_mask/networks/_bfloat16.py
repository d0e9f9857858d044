"""Matrix products in bfloat16, with parameters in float32 (Micikevicius et al. 2018,
arXiv:1710.03740)."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import (
    AbstractActorCritic,
    AbstractFeatureActorCritic,
    AbstractWrappedActorCritic,
    advance,
)
from ppo_mask.networks._distribution import AbstractMaskedDistribution
from ppo_mask.networks._normalize import NormalizedActorCritic


@final
class BFloat16ActorCritic(AbstractWrappedActorCritic):
    """A wrapper that computes any network in bfloat16.

    Parameters stay in float32 for the optimizer. Each call rounds the parameters, and the floats of
    the observation and of the hidden state, to bfloat16. The results are float32: the logits, the
    value, and the hidden state for the next step.

    The library's linear layers sum their bfloat16 products in float32, and continue in float32;
    their gradients are products in bfloat16, too, summed in float32.

    Args:
        key: not used.

    Attributes:
        network: the trainable network.
    """

    network: AbstractActorCritic

    def __init__(self, network: AbstractActorCritic, *, key: Key[Array, ""] | None = None):
        del key  # Loading passes a key to every network's constructor; nothing here is random.
        self.network = network

    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
        network, observation, before = jax.tree.map(_rounded, (self.network, observation, hidden))
        distribution, value, after = advance(network, observation, action_mask, before)
        hidden = jax.tree.map(lambda old, new: new.astype(old.dtype), hidden, after)
        return distribution, value.astype(jnp.float32), hidden


def to_bfloat16(model: AbstractActorCritic) -> AbstractActorCritic:
    """Wraps a model's network in a :class:`BFloat16ActorCritic`, unless already wrapped.

    Features and normalization stay in float32.
    """
    if isinstance(model, BFloat16ActorCritic):
        return model
    if isinstance(model, (AbstractFeatureActorCritic, NormalizedActorCritic)):
        return eqx.tree_at(lambda m: m.network, model, to_bfloat16(model.network))
    return BFloat16ActorCritic(model)


def _rounded(x: Any) -> Any:
    is_float = eqx.is_array(x) and jnp.issubdtype(x.dtype, jnp.floating)
    return x.astype(jnp.bfloat16) if is_float else x
