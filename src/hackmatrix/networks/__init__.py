"""Networks for the game: from an observation to a policy and a value.

In: an observation, flat or compact. :mod:`~hackmatrix.networks.features` shows the board from where
the player stands. Out: a distribution over the 28 actions and a value.
"""

from ._board import BoardActorCritic as BoardActorCritic
from ._board import BoardNetwork as BoardNetwork
from ._mlp import FlatActorCritic as FlatActorCritic
from ._mlp import PlayerCenteredMLP as PlayerCenteredMLP
from ._mlp import flat_mlp as flat_mlp
from ._mlp import player_centered_gru as player_centered_gru

__all__ = [
    "BoardActorCritic",
    "BoardNetwork",
    "FlatActorCritic",
    "PlayerCenteredMLP",
    "flat_mlp",
    "player_centered_gru",
]
