"""Networks that see the board from where the player stands; one is what a run trains by default."""

from typing import Any, final

from jaxtyping import Array, Float, Int8, Key

from hackmatrix.env import NUM_ACTIONS
from hackmatrix.features import NUM_FEATURES, features, unpacked
from ppo_mask.networks import AbstractActorCritic, AbstractFeatureActorCritic, MLPActorCritic
from ppo_mask.recurrent import GRUActorCritic

_POLICY_GAIN = 10.0


@final
class PlayerCentredMLP(AbstractFeatureActorCritic):
    """An MLP that sees the board from where the player stands (:mod:`hackmatrix.features`)."""

    network: AbstractActorCritic

    def __init__(
        self,
        hidden_dim: int = 256,
        num_layers: int = 2,
        network: AbstractActorCritic | None = None,
        *,
        key: Key[Array, ""],
    ):
        """With a ``network`` for the features, the sizes say nothing."""
        if network is None:
            network = MLPActorCritic(
                NUM_FEATURES, NUM_ACTIONS, hidden_dim, num_layers, True, _POLICY_GAIN, key=key
            )
        self.network = network

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return {"network": self.network}

    def features(self, observation: Float[Array, " observation"]) -> Int8[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return features(observation).packed()

    def unpacked(self, features: Int8[Array, " features"]) -> Float[Array, " features"]:
        """See :class:`ppo_mask.networks.AbstractFeatureActorCritic`."""
        return unpacked(features)


def player_centred_gru(hidden_dim: int = 256, *, key: Key[Array, ""]) -> PlayerCentredMLP:
    """The same with a network that remembers in place of the MLP."""
    network = GRUActorCritic(NUM_FEATURES, NUM_ACTIONS, hidden_dim, True, _POLICY_GAIN, key=key)
    return PlayerCentredMLP(network=network, key=key)  # Whose own key is not used then.
