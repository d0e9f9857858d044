"""The default network for an environment, and one-line descriptions of networks."""

from typing import Any, SupportsIndex

from jaxtyping import Array, Key

from ppo_mask.envs.actions import describe_actions
from ppo_mask.jax_tools import describe_shapes
from ppo_mask.networks._actor_critic import (
    AbstractActorCritic,
    AbstractWrappedActorCritic,
    count_parameters,
)
from ppo_mask.networks._conv import ConvActorCritic
from ppo_mask.networks._mlp import MLPActorCritic
from ppo_mask.networks._observation import channels_last, find_grid
from ppo_mask.networks.layers import observation_shapes, size_of

_SHOWN = 4  # arrays; an observation with more arrays is summarized


def network_for(
    env: Any,
    *,
    key: Key[Array, ""],
    hidden_dim: SupportsIndex = 256,
    num_layers: SupportsIndex = 2,
    shared_layers: SupportsIndex = 0,
    channels_first: bool | None = None,
) -> AbstractActorCritic:
    """Makes the default network: convolutions for an image or a board, else an MLP.

    Args:
        env: an :class:`~ppo_mask.envs.AbstractEnv` with any observation of numbers.
        key: the random key of the initial weights.
        hidden_dim: width of the hidden layers.
        num_layers: number of hidden layers of an MLP.
        shared_layers: number of an MLP's first hidden layers that both heads share.
        channels_first: as in :meth:`ConvActorCritic.for_env`.

    Raises:
        ValueError: the observation has no numbers, or a size is invalid.

    Example:
        >>> import jax, ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> type(pm.networks.network_for(env, key=jax.random.key(0))).__name__
        'MLPActorCritic'
    """
    if find_grid(env, observation_shapes(env), channels_first) is not None:
        return ConvActorCritic.for_env(
            env, key=key, hidden_dim=hidden_dim, channels_first=channels_first
        )
    return MLPActorCritic.for_env(
        env, key=key, hidden_dim=hidden_dim, num_layers=num_layers, shared_layers=shared_layers
    )


def describe_network(model: AbstractActorCritic, env: Any, observation: Any = None) -> str:
    """Describes in one line an environment's observation, a network, and the actions.

    Args:
        model: any model.
        env: the environment that the model is for.
        observation: the shapes of an observation, if known; None traces ``env.reset`` to find them.

    Example:
        >>> import jax, ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks(keys=2)
        >>> model = pm.MLPActorCritic.for_env(env, hidden_dim=8, key=jax.random.key(0))
        >>> print(pm.networks.describe_network(model, env))
        float32[1] -> MLPActorCritic, 299 parameters -> 32 actions
    """
    observation = observation_shapes(env) if observation is None else observation
    arrays = describe_shapes(observation)
    shown = ", ".join(f"{name.lstrip('.')} {shape}".strip() for name, shape in arrays.items())
    if len(arrays) > _SHOWN:
        shown = f"{len(arrays)} arrays of {size_of(observation):,} numbers"
    made = f"{type(model).__name__}{_describe_grid(model)}, {count_parameters(model):,} parameters"
    return f"{shown} -> {made} -> {describe_actions(env.num_actions)}"


def _describe_grid(model: AbstractActorCritic) -> str:
    """Describes how a network with convolutions reads its grid; empty for other networks."""
    while isinstance(model, AbstractWrappedActorCritic):
        model = model.network
    if not isinstance(model, ConvActorCritic):
        return ""
    rows, columns, channels = channels_last(model.grid_shape, model.channels_first)
    order = "first" if model.channels_first else "last"
    return f" ({rows} x {columns} cells, {channels} channels, which come {order})"
