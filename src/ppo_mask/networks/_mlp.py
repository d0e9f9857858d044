"""The default network: two MLPs."""

from typing import final

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._distribution import (
    AbstractMaskedDistribution,
    MaskedMultiCategorical,
    masked_distribution,
)
from ppo_mask.networks.layers import Activation, activate, affine, as_vector, check_sizes, linear


@final
class MLPActorCritic(AbstractActorCritic):
    """Two MLPs, one for the policy and one for the value, on a vector of numbers.

    :func:`ppo_mask.network_for` makes one for any observation. Without a reader, the arrays of an
    observation are joined into one vector.

    The MLPs share no layers by default. Early in training, the value's gradients are large, and in
    a shared trunk they would disturb the policy's features; Andrychowicz et al. 2021
    (arXiv:2006.05990) found separate networks better. Weights start orthogonal: with gain √2 in
    hidden layers, 0.01 in the policy's head (for a nearly uniform policy), 1 in the value's head.
    Biases start at 0.

    Each step of Adam moves a weight by about the learning rate, but by much less if the gradient is
    below Adam's epsilon of 1e-5. On long and sparse observations the policy's hidden layers start
    with gradients that small, because the gradients pass through a head of gain 0.01.
    ``layer_norm`` and ``policy_gain`` enlarge the gradients by enlarging the layers' inputs.

    Args:
        key: the random key of the initial weights.

    Attributes:
        observation_size: number of inputs.
        num_actions: number of logits of the policy; if MultiDiscrete, a number for each part.
        hidden_dim: width of the hidden layers.
        num_layers: number of hidden layers of each MLP.
        layer_norm: whether to normalize hidden layers to mean 0 and variance 1 before tanh
            (Ba et al. 2016, arXiv:1607.06450), without learned scale and offset. This is not useful
            for observations of one or two numbers, since it hides their magnitude.
        policy_gain: factor on the last hidden layer before the policy's head.
        part_embedding: for MultiDiscrete actions, the size of a vector of each choice, by which the
            logits of later parts depend on that choice; 0 for no dependence.
        shared_layers: number of first hidden layers that policy and value share. For a long
            observation, most of the cost is in the first layer; sharing this layer halves its cost.
        activation: of the hidden layers: "tanh", "relu" or "gelu".
        trunk: the shared layers.
        actor: the policy's other layers.
        critic: the value's other layers.
        earlier: the vectors of the choices; None without.

    Raises:
        ValueError: a size is below 1, ``shared_layers`` is not between 0 and ``num_layers``, or
            there is a ``part_embedding`` for actions without parts.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> network = pm.MLPActorCritic(3, 4, hidden_dim=8, key=jax.random.key(0))
        >>> distribution, value = network(jnp.ones(3), jnp.arange(4) < 2)
        >>> print(distribution.probs.round(1))
        [0.5 0.5 0.  0. ]
    """

    observation_size: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    num_layers: int = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    policy_gain: float = eqx.field(static=True)
    shared_layers: int = eqx.field(static=True)
    part_embedding: int = eqx.field(static=True)
    activation: Activation = eqx.field(static=True)
    trunk: tuple[eqx.nn.Linear, ...]
    actor: tuple[eqx.nn.Linear, ...]
    critic: tuple[eqx.nn.Linear, ...]
    earlier: Float[Array, "actions size"] | None

    def __init__(
        self,
        observation_size: int,
        num_actions: NumActions,
        hidden_dim: int = 256,
        num_layers: int = 2,
        layer_norm: bool = False,
        policy_gain: float = 1.0,
        shared_layers: int = 0,
        part_embedding: int = 0,
        activation: Activation = "tanh",
        *,
        key: Key[Array, ""],
    ):
        self.observation_size = observation_size
        self.num_actions = num_actions
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.layer_norm = layer_norm
        self.policy_gain = policy_gain
        self.shared_layers = shared_layers
        self.part_embedding = part_embedding
        self.activation = activation
        check_sizes(self, "observation_size", "num_actions", "hidden_dim", "num_layers")
        actor_key, critic_key = jax.random.split(key)
        if not 0 <= shared_layers <= num_layers:
            raise ValueError(
                f"shared_layers must be 0 to num_layers = {num_layers}, got {shared_layers}"
            )
        length, self.earlier = Actions.of(num_actions).length, None
        if part_embedding:
            if not isinstance(num_actions, tuple):
                raise ValueError("part_embedding is for MultiDiscrete actions, which have parts")
            actor_key, key = jax.random.split(actor_key)
            self.earlier = linear(part_embedding, length, 1.0, key).weight
        hidden = (observation_size, *[hidden_dim] * num_layers)
        actor = _mlp((*hidden, length * (1 + part_embedding)), 0.01, actor_key)
        critic = _mlp((*hidden, 1), 1.0, critic_key)
        self.trunk, self.actor = actor[:shared_layers], actor[shared_layers:]
        self.critic = critic[shared_layers:]

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        x = as_vector(observation, self.observation_size)
        for layer in self.trunk:
            x = activate(layer, x, self.layer_norm, self.activation)
        logits = self._apply(self.actor, x, self.policy_gain)
        value = self._apply(self.critic, x, 1.0)
        if self.earlier is None or not isinstance(self.num_actions, tuple):
            return masked_distribution(logits, action_mask, self.num_actions), value[0]
        # Each logit comes with a vector, whose product with that of a choice is added to the logit.
        rows = logits.reshape(-1, 1 + self.part_embedding)
        links = rows[:, 1:], self.earlier
        return MaskedMultiCategorical(rows[:, 0], action_mask, self.num_actions, links), value[0]

    def _apply(
        self, layers: tuple[eqx.nn.Linear, ...], x: Float[Array, " n_in"], gain: float
    ) -> Float[Array, " n_out"]:
        for layer in layers[:-1]:
            x = activate(layer, x, self.layer_norm, self.activation)
        return affine(layers[-1], x, gain)


def _mlp(
    sizes: tuple[int, ...], head_gain: float, key: Key[Array, ""]
) -> tuple[eqx.nn.Linear, ...]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [2**0.5] * (len(sizes) - 2) + [head_gain]
    return tuple(map(linear, sizes[:-1], sizes[1:], gains, keys))
