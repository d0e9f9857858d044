"""The game in plain Python: its rules as a person reads them.

These rules define the game; the rest of :mod:`hackmatrix.rules` plays thousands of games at once.
Tests compare these rules with recordings of the original game, and the fast rules with these rules.

A :class:`Game` changes in place. All randomness comes from a :class:`Chance`.

Example:
    >>> from hackmatrix.rules import plain
    >>> chance = plain.Dice(seed=0)
    >>> game, result = plain.new_game(chance), plain.Result()
    >>> while not result.over:
    ...     result = plain.step(game, max(plain.legal(game), default=0), chance)
"""

from hackmatrix.rules.plain.actions import legal, lost_yield, step
from hackmatrix.rules.plain.game import (
    BOARD,
    CORNERS,
    PICKUP,
    Cell,
    Chance,
    Dice,
    Game,
    Player,
    Position,
    Result,
    distances,
    dump,
    load,
    neighbors,
)
from hackmatrix.rules.plain.sight import observe
from hackmatrix.rules.plain.turns import new_game

__all__ = [
    "BOARD",
    "CORNERS",
    "PICKUP",
    "Cell",
    "Chance",
    "Dice",
    "Game",
    "Player",
    "Position",
    "Result",
    "distances",
    "dump",
    "legal",
    "load",
    "lost_yield",
    "neighbors",
    "new_game",
    "observe",
    "step",
]
