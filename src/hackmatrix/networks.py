"""The network that a HackMatrix run trains by default."""

from typing import Any, final

from jaxtyping import Array, Bool, Float, Key

from hackmatrix.env import NUM_ACTIONS
from hackmatrix.features import NUM_FEATURES, features
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic


@final
class PlayerCentredMLP(AbstractActorCritic):
    """An MLP that sees the board from where the player stands (:mod:`hackmatrix.features`)."""

    mlp: MLPActorCritic

    def __init__(self, hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]):
        self.mlp = MLPActorCritic(
            NUM_FEATURES, NUM_ACTIONS, hidden_dim, num_layers, True, 10.0, key=key
        )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return {"hidden_dim": self.mlp.hidden_dim, "num_layers": self.mlp.num_layers}

    def __call__(
        self, observation: Float[Array, " observation"], action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return self.mlp(features(observation).flat(), action_mask)
