"""Networks that see the board from where the player stands; one is what a run trains by default."""

from typing import final

from jaxtyping import Array, Float, Int8, Key

from hackmatrix.actions import NUM_ACTIONS
from hackmatrix.networks.features import NUM_FEATURES, features, unpack
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
    """An MLP that sees the board from where the player stands.

    See :mod:`hackmatrix.networks.features`.
    """

    network: AbstractActorCritic

    def __init__(
        self,
        hidden_dim: int = 256,
        num_layers: int = 2,
        network: AbstractActorCritic | None = None,
        *,
        key: Key[Array, ""],
    ):
        """Makes the network; one that is given is used as it is, and the sizes are not."""
        self.network = network or MLPActorCritic(
            NUM_FEATURES, NUM_ACTIONS, hidden_dim, num_layers, True, _POLICY_GAIN, key=key
        )

    def features(self, observation: Observation) -> Int8[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return features(observation).packed()

    def unpack(self, features: Int8[Array, " features"]) -> Float[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return unpack(features)


def player_centered_gru(hidden_dim: int = 256, *, key: Key[Array, ""]) -> PlayerCenteredMLP:
    """The same with a network that remembers in place of the MLP."""
    network = GRUActorCritic(NUM_FEATURES, NUM_ACTIONS, hidden_dim, True, _POLICY_GAIN, key=key)
    return PlayerCenteredMLP(network=network, key=key)  # Whose own key is not used then.


@final
class FlatActorCritic(AbstractFeatureActorCritic):
    """Any network, on the flat observation; a rollout keeps the compact one, if there is one.

    Attributes:
        network: sees ``float32[1545]``.
    """

    network: AbstractActorCritic

    def __init__(self, network: AbstractActorCritic, *, key: Key[Array, ""] | None = None):
        del key  # Nothing here is random; a saved network is rebuilt with a key.
        self.network = network

    def features(self, observation: Observation) -> Observation:
        """The same: a compact one is smaller than what is made of it."""
        return observation

    def unpack(self, features: Observation) -> Float[Array, " observation"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return expand(features)


def flat_mlp(hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]) -> FlatActorCritic:
    """An MLP on the flat observation, for comparison."""
    return FlatActorCritic(
        MLPActorCritic(OBSERVATION_SIZE, NUM_ACTIONS, hidden_dim, num_layers, key=key)
    )
