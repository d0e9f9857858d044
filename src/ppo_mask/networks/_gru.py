"""A recurrent network: a layer, a gated recurrent unit, and two heads."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.networks._actor_critic import AbstractRecurrentActorCritic
from ppo_mask.networks._distribution import MaskedCategorical
from ppo_mask.networks.layers import (
    activate,
    affine,
    check_sizes,
    flat_observation_size,
    layer_of,
    linear,
)


@final
class GRUActorCritic(AbstractRecurrentActorCritic):
    """A layer, a gated recurrent unit, and a head for the policy and for the value.

    The GRU is that of Cho et al. 2014 (arXiv:1406.1078). All weights start orthogonal: with gain √2
    before the unit, 1 in it, 0.01 for the policy's head, 1 for the value's; biases start at 0.

    Attributes:
        layer_norm: what the unit sees is normalized to mean 0 and variance 1 before its tanh.
        policy_gain: what the hidden state is multiplied by before the policy's head; see
            :class:`~ppo_mask.networks.MLPActorCritic`.
    """

    encoder: eqx.nn.Linear
    gates: eqx.nn.Linear
    recurrent_gates: eqx.nn.Linear
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    policy_gain: float = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        num_actions: int,
        hidden_dim: int = 256,
        layer_norm: bool = False,
        policy_gain: float = 1.0,
        *,
        key: Key[Array, ""],
    ):
        check_sizes(
            observation_size=observation_size, num_actions=num_actions, hidden_dim=hidden_dim
        )
        keys = jax.random.split(key, 9)
        self.encoder = linear(observation_size, hidden_dim, 2**0.5, keys[0])
        self.gates = _stacked(hidden_dim, keys[1:4])
        self.recurrent_gates = _stacked(hidden_dim, keys[4:7])
        self.actor = linear(hidden_dim, num_actions, 0.01, keys[7])
        self.critic = linear(hidden_dim, 1, 1.0, keys[8])
        self.observation_size = observation_size
        self.num_actions = num_actions
        self.hidden_dim = hidden_dim
        self.layer_norm = layer_norm
        self.policy_gain = policy_gain

    @classmethod
    def for_env(cls, env: Any, *, key: Key[Array, ""], **hyperparameters: Any) -> "GRUActorCritic":
        """A network of the sizes that an environment needs, as :class:`MLPActorCritic` has it.

        Args:
            env: an environment whose observation is one flat array of floats.
            key: draws the weights.
            hyperparameters: of the constructor, such as ``hidden_dim``.

        Raises:
            ValueError: the observation is something else.
        """
        return cls(flat_observation_size(env), env.num_actions, key=key, **hyperparameters)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return {
            "observation_size": self.observation_size,
            "num_actions": self.num_actions,
            "hidden_dim": self.hidden_dim,
            "layer_norm": self.layer_norm,
            "policy_gain": self.policy_gain,
        }

    def initial_hidden(self) -> Float[Array, " hidden"]:
        """Zeros."""
        return jnp.zeros(self.hidden_dim, jnp.float32)

    def advance(
        self,
        observation: Float[Array, " features"],
        action_mask: Bool[Array, " actions"],
        hidden: Float[Array, " hidden"],
    ) -> tuple[MaskedCategorical, Float[Array, ""], Float[Array, " hidden"]]:
        """See :class:`ppo_mask.networks.AbstractRecurrentActorCritic`."""
        seen = activate(self.encoder, observation, self.layer_norm)
        new = jnp.split(affine(self.gates, seen), 3)
        old = jnp.split(affine(self.recurrent_gates, hidden), 3)
        reset, update = jax.nn.sigmoid(new[0] + old[0]), jax.nn.sigmoid(new[1] + old[1])
        candidate = jnp.tanh(new[2] + reset * old[2])
        hidden = update * hidden + (1 - update) * candidate
        logits = affine(self.actor, hidden, self.policy_gain)
        return MaskedCategorical(logits, action_mask), affine(self.critic, hidden)[0], hidden


def _stacked(size: int, keys: Key[Array, " gates"]) -> eqx.nn.Linear:
    """One layer of several gates, each orthogonal by itself."""
    return layer_of(jnp.concatenate([linear(size, size, 1.0, key).weight for key in keys]))
