"""A policy without weights: random play."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_mask.envs.actions import NumActions
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution, masked_distribution


@final
class UniformActorCritic(AbstractActorCritic):
    """A policy under which all allowed actions are equally likely. Its value is NaN: unknown.

    Attributes:
        num_actions: the environment's number of actions; if MultiDiscrete, that of each part.
    """

    num_actions: NumActions = eqx.field(static=True)

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        """See :class:`AbstractActorCritic`."""
        logits = jnp.zeros(action_mask.shape)
        return masked_distribution(logits, action_mask, self.num_actions), jnp.float32(jnp.nan)
