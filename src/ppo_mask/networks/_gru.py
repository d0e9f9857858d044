"""A recurrent network: a layer, a gated recurrent unit, and two heads."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import AbstractRecurrentActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution, masked_distribution
from ppo_mask.networks.layers import activate, affine, as_vector, check_sizes, layer_of, linear


@final
class GRUActorCritic(AbstractRecurrentActorCritic):
    """A layer, a gated recurrent unit, a head for the policy and a head for the value.

    The unit is the GRU of Cho et al. 2014 (arXiv:1406.1078). All weights start orthogonal: with
    gain √2 before the unit, 1 in the unit, 0.01 in the policy's head, 1 in the value's head. Biases
    start at 0.

    Args:
        key: the random key of the initial weights.

    Attributes:
        observation_size: number of inputs.
        num_actions: number of logits of the policy; if MultiDiscrete, a number for each part.
        hidden_dim: size of the hidden state, and width of the first layer.
        layer_norm: whether to normalize the first layer to mean 0 and variance 1 before its tanh.
        policy_gain: factor on the hidden state before the policy's head; see
            :class:`~ppo_mask.networks.MLPActorCritic`.
        encoder: the first layer.
        gates: the unit's weights for the first layer's output, with the reset, update and candidate
            gates stacked.
        recurrent_gates: the unit's weights for the hidden state, stacked like ``gates``.
        actor: the policy's head.
        critic: the value's head.

    Raises:
        ValueError: a size is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> model = pm.GRUActorCritic(4, 2, hidden_dim=8, key=jax.random.key(0))
        >>> hidden = model.initial_hidden()
        >>> mask = jnp.array([True, False])
        >>> distribution, value, hidden = model.advance(jnp.ones(4), mask, hidden)
        >>> print(distribution.probs, hidden.shape)
        [1. 0.] (8,)
    """

    observation_size: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    policy_gain: float = eqx.field(static=True)
    encoder: eqx.nn.Linear
    gates: eqx.nn.Linear
    recurrent_gates: eqx.nn.Linear
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

    def __init__(
        self,
        observation_size: int,
        num_actions: NumActions,
        hidden_dim: int = 256,
        layer_norm: bool = False,
        policy_gain: float = 1.0,
        *,
        key: Key[Array, ""],
    ):
        self.observation_size = observation_size
        self.num_actions = num_actions
        self.hidden_dim = hidden_dim
        self.layer_norm = layer_norm
        self.policy_gain = policy_gain
        check_sizes(self, "observation_size", "num_actions", "hidden_dim")
        keys = jax.random.split(key, 9)
        self.encoder = linear(observation_size, hidden_dim, 2**0.5, keys[0])
        self.gates = _stacked(hidden_dim, keys[1:4])
        self.recurrent_gates = _stacked(hidden_dim, keys[4:7])
        self.actor = linear(hidden_dim, Actions.of(num_actions).length, 0.01, keys[7])
        self.critic = linear(hidden_dim, 1, 1.0, keys[8])

    def initial_hidden(self) -> Float[Array, " hidden"]:
        """Returns a hidden state of zeros."""
        return jnp.zeros(self.hidden_dim, jnp.float32)

    def advance(
        self,
        observation: ArrayTree,
        action_mask: Bool[Array, " actions"],
        hidden: Float[Array, " hidden"],
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], Float[Array, " hidden"]]:
        x = as_vector(observation, self.observation_size)
        encoded = activate(self.encoder, x, self.layer_norm)
        new = jnp.split(affine(self.gates, encoded), 3)
        old = jnp.split(affine(self.recurrent_gates, hidden), 3)
        reset, update = jax.nn.sigmoid(new[0] + old[0]), jax.nn.sigmoid(new[1] + old[1])
        candidate = jnp.tanh(new[2] + reset * old[2])
        # The gates are float32, and the hidden state may be bfloat16.
        hidden = update * hidden.astype(update.dtype) + (1 - update) * candidate
        logits = affine(self.actor, hidden, self.policy_gain)
        distribution = masked_distribution(logits, action_mask, self.num_actions)
        return distribution, affine(self.critic, hidden)[0], hidden


def _stacked(size: int, keys: Key[Array, " gates"]) -> eqx.nn.Linear:
    """Makes one layer of several gates, each with orthogonal weights."""
    return layer_of(jnp.concatenate([linear(size, size, 1.0, key).weight for key in keys]))
