"""Models for the game: from an observation to a policy and a value.

In: an observation in any form. Out: a distribution over the 28 actions, and a value.
:mod:`~hackmatrix.networks.features` computes features relative to the player.
"""

from ._board import BoardNetwork, BoardReader, board_network
from ._mlp import FlatReader, PlayerCentered, flat_mlp, player_centered_gru, player_centered_mlp

__all__ = [
    "BoardNetwork",
    "BoardReader",
    "FlatReader",
    "PlayerCentered",
    "board_network",
    "flat_mlp",
    "player_centered_gru",
    "player_centered_mlp",
]
