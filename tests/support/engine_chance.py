"""The engine's draws of a step, given to the plain rules as they ask for them.

So both must come to the same end, whatever is random. What the engine draws is among slots.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from hackmatrix.rules import plain
from hackmatrix.rules.draws import Use
from hackmatrix.rules.programs import Program

T = TypeVar("T")
_WORD = (1 << 32) - 1


class EngineChance:
    """The chance of one step, or of a new game.

    Attributes:
        words: the two that all draws are made of.
        slots: those of the game's enemies and then of its transmissions, in list order.
        game: the one that the step is in.
    """

    def __init__(
        self, words: Sequence[int], slots: Sequence[int] = (), game: plain.Game | None = None
    ) -> None:
        self._words, self._game, self._moved = words, game, 0
        entities = [*game.enemies, *game.transmissions] if game else []
        self._slots = {id(each): slot for each, slot in zip(entities, slots, strict=True)}

    def __call__(self, options: Sequence[T], use: Use, number: int = 0) -> T:
        if use == Use.ORDER:
            # Who attacks changes nothing for the others, and takes no turn.
            for enemy in options:
                if enemy.cell in plain.neighbors(self._game.player.cell):
                    return enemy
            number, self._moved = self._moved, self._moved + 1
        if use in (Use.ORDER, Use.WARP):
            options = sorted(options, key=lambda each: self._slots[id(each)])
        if use == Use.POLY:
            number = self._slots[id(self._game.enemies[number])]
        if use == Use.PROGRAM:  # All are shuffled once.
            shuffled = sorted(Program, key=lambda program: self._word(use, program) & ~63 | program)
            return options[options.index(shuffled[number])]
        return options[self._below(len(options), use, number)]

    def _below(self, bound: int, use: Use, number: int) -> int:
        share = np.float32(self._word(use, number) >> 9) * np.float32(bound * 2.0**-23)
        return int(share)

    def _word(self, use: Use, number: int) -> int:
        x = self._words[0] + ((use << 20) + number) * 0x9E3779B9 & _WORD
        x = (x ^ x >> 16) * 0x7FEB352D & _WORD
        x = (x ^ x >> 15 ^ self._words[1]) * 0x846CA68B & _WORD
        return x ^ x >> 16
