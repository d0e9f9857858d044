"""Networks for the game: from an observation to a policy and a value.

In: an observation, flat or compact. :mod:`~hackmatrix.networks.features` shows the board from where
the player stands. Out: a distribution over the 28 actions and a value.
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
