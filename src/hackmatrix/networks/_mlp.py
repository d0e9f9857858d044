"""MLPs and a GRU for the game; :class:`PlayerCenteredMLP` is the default network."""

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
from ppo_mask.networks import (
    AbstractActorCritic,
    AbstractFeatureActorCritic,
    GRUActorCritic,
    MLPActorCritic,
)

_POLICY_GAIN = 10.0


@final
class PlayerCenteredMLP(AbstractFeatureActorCritic):
    """An MLP whose features are relative to the player (:mod:`hackmatrix.networks.features`).

    Attributes:
        network: gets the features as floats; an MLP by default.
        time_aware: whether the number of actions taken is a feature, too, which lets a greedy
            policy leave a loop. Needs a time-aware environment.
    """

    network: AbstractActorCritic
    time_aware: bool = eqx.field(static=True)

    def __init__(
        self,
        hidden_dim: int = 256,
        num_layers: int = 2,
        network: AbstractActorCritic | None = None,
        *,
        shared_layers: int = 0,
        time_aware: bool = False,
        key: Key[Array, ""],
    ):
        """Makes the network; if ``network`` is given, the sizes are not used."""
        self.time_aware = time_aware
        self.network = network or MLPActorCritic(
            NUM_FEATURES_WITH_TIME if time_aware else NUM_FEATURES,
            NUM_ACTIONS,
            hidden_dim,
            num_layers,
            layer_norm=True,
            policy_gain=_POLICY_GAIN,
            shared_layers=shared_layers,
            key=key,
        )

    def features(self, observation: Observation) -> Int8[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        if self.time_aware:
            return packed_with_time(observation)
        return features(observation).packed()

    def unpack(self, features: Int8[Array, " features"]) -> Float[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return unpack(features)


def player_centered_gru(
    hidden_dim: int = 256, *, time_aware: bool = False, key: Key[Array, ""]
) -> PlayerCenteredMLP:
    """Makes a :class:`PlayerCenteredMLP` with a GRU in place of the MLP.

    Args:
        hidden_dim: size of the hidden state.
        time_aware: see :class:`PlayerCenteredMLP`.
        key: initializes the weights.
    """
    size = NUM_FEATURES_WITH_TIME if time_aware else NUM_FEATURES
    network = GRUActorCritic(size, NUM_ACTIONS, hidden_dim, True, _POLICY_GAIN, key=key)
    # The key is not used, as a network is given.
    return PlayerCenteredMLP(network=network, time_aware=time_aware, key=key)


@final
class FlatActorCritic(AbstractFeatureActorCritic):
    """Feeds flat observations to any network; rollouts store the environment's, compact or flat.

    Args:
        key: not used.

    Attributes:
        network: gets ``float32[1545]``.
    """

    network: AbstractActorCritic

    def __init__(self, network: AbstractActorCritic, *, key: Key[Array, ""] | None = None):
        del key  # Nothing here is random, but loading a saved network passes a key.
        self.network = network

    def features(self, observation: Observation) -> Observation:
        """Returns the observation unchanged; a compact observation takes the least memory."""
        return observation

    def unpack(self, features: Observation) -> Float[Array, " observation"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return expand(features)


def flat_mlp(hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]) -> FlatActorCritic:
    """Makes an MLP on the flat observation, for comparison with the default network.

    Args:
        hidden_dim: width of the hidden layers.
        num_layers: hidden layers of each MLP.
        key: initializes the weights.
    """
    return FlatActorCritic(
        MLPActorCritic(OBSERVATION_SIZE, NUM_ACTIONS, hidden_dim, num_layers, key=key)
    )
