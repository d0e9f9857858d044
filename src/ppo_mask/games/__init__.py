"""Games of several players who move in turn, as environments of one of them.

An :class:`AbstractGame` says how a game goes, and a :class:`Seat` in it is an environment: its
opponent plays the other seats. :func:`check_game` tests a game.
"""

from ._check import check_game
from ._game import AbstractGame, Turn
from ._opponents import Opponent, random_opponent
from ._seat import Seat

__all__ = ["AbstractGame", "Opponent", "Seat", "Turn", "check_game", "random_opponent"]
