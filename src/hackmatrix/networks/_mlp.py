"""MLPs and a GRU for the game; :func:`player_centered_mlp` makes the default model."""

from typing import final

import equinox as eqx
from jaxtyping import Array, Float, Int8, Key

from hackmatrix.actions import NUM_ACTIONS
from hackmatrix.networks.features import (
    NUM_FEATURES,
    NUM_FEATURES_WITH_TIME,
    features,
    packed_with_time,
    unpack,
)
from hackmatrix.observation import OBSERVATION_SIZE, Observation, expand
from ppo_mask.networks import AbstractReader, GRUActorCritic, MLPActorCritic, Model

_POLICY_GAIN = 10.0


@final
class PlayerCentered(AbstractReader):
    """Reads features relative to the player (:mod:`hackmatrix.networks.features`).

    Attributes:
        time_aware: whether the number of actions taken is a feature, too, which lets a greedy
            policy leave a loop. Needs a time-aware environment.
    """

    time_aware: bool = eqx.field(static=True, default=False)

    @property
    def size(self) -> int:
        """The number of features."""
        return NUM_FEATURES_WITH_TIME if self.time_aware else NUM_FEATURES

    def features(self, observation: Observation) -> Int8[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractReader`."""
        if self.time_aware:
            return packed_with_time(observation)
        return features(observation).packed()

    def unpack(self, features: Int8[Array, " features"]) -> Float[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractReader`."""
        return unpack(features)


def player_centered_mlp(
    hidden_dim: int = 256,
    num_layers: int = 2,
    *,
    shared_layers: int = 0,
    time_aware: bool = False,
    key: Key[Array, ""],
) -> Model:
    """Makes the default model: an MLP on features relative to the player.

    Args:
        hidden_dim: width of the hidden layers.
        num_layers: hidden layers of each MLP.
        shared_layers: first hidden layers that policy and value share.
        time_aware: see :class:`PlayerCentered`.
        key: initializes the weights.
    """
    reader = PlayerCentered(time_aware)
    network = MLPActorCritic(
        reader.size,
        NUM_ACTIONS,
        hidden_dim,
        num_layers,
        layer_norm=True,
        policy_gain=_POLICY_GAIN,
        shared_layers=shared_layers,
        key=key,
    )
    return Model(reader, network)


def player_centered_gru(
    hidden_dim: int = 256, *, time_aware: bool = False, key: Key[Array, ""]
) -> Model:
    """Makes a GRU on features relative to the player.

    Args:
        hidden_dim: size of the hidden state.
        time_aware: see :class:`PlayerCentered`.
        key: initializes the weights.
    """
    reader = PlayerCentered(time_aware)
    network = GRUActorCritic(reader.size, NUM_ACTIONS, hidden_dim, True, _POLICY_GAIN, key=key)
    return Model(reader, network)


@final
class FlatReader(AbstractReader):
    """Reads ``float32[1545]``; a rollout stores the environment's observation, compact or flat."""

    def unpack(self, features: Observation) -> Float[Array, " observation"]:
        """See :class:`ppo_mask.networks.AbstractReader`."""
        return expand(features)


def flat_mlp(hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]) -> Model:
    """Makes an MLP on the flat observation, for comparison with the default model.

    Args:
        hidden_dim: width of the hidden layers.
        num_layers: hidden layers of each MLP.
        key: initializes the weights.
    """
    network = MLPActorCritic(OBSERVATION_SIZE, NUM_ACTIONS, hidden_dim, num_layers, key=key)
    return Model(FlatReader(), network)
