"""Networks for the game: from an observation to a policy and a value.

In: an observation in any form. Out: a distribution over the 28 actions, and a value.
:mod:`~hackmatrix.networks.features` computes features relative to the player.
"""

from ._board import BoardActorCritic, BoardNetwork
from ._mlp import FlatActorCritic, PlayerCenteredMLP, flat_mlp, player_centered_gru

__all__ = [
    "BoardActorCritic",
    "BoardNetwork",
    "FlatActorCritic",
    "PlayerCenteredMLP",
    "flat_mlp",
    "player_centered_gru",
]
