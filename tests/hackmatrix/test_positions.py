"""Positions as JSON: what is written is read again, and what is wrong is refused in one line."""

import json

import jax
import numpy as np
import pytest

from games import position
from hackmatrix import positions
from hackmatrix.rules.entities import MAX_ENTITIES
from hackmatrix.rules.history import depth
from recorded import new_games, row, starts, states

NOTHING = [0, 0, -1, 0, 0, 0, 0, 0]


def plain(start):
    """A position with the empty cells left out and all lists as lists."""
    start = json.loads(json.dumps(start))
    return start | {
        "owned": sorted(start["owned"]),
        "cells": sorted(cell for cell in start["cells"] if cell[2:] != NOTHING),
    }


def test_every_recorded_state_comes_back_as_it_was():
    for found, start in zip(positions.dump_all(states()), starts(), strict=True):
        assert found == plain(start)


def test_a_dumped_position_is_plain_json():
    start = position(enemies=[(0, 1, 1)], transmissions=[(4, 4)])
    state = positions.load(start, undo_depth=12)
    dumped = positions.dump(state)
    assert json.loads(json.dumps(dumped)) == dumped == start
    assert depth(state.history) == 12


def test_a_game_that_is_played_can_be_dumped_and_loaded():
    state = row(new_games()[0], 0)
    again = positions.load(positions.dump(state))
    assert positions.dump(again) == positions.dump(state)
    assert jax.tree.map(np.shape, again) == jax.tree.map(np.shape, state)
    assert jax.tree.map(lambda x: x.dtype, again) == jax.tree.map(lambda x: x.dtype, state)


def test_a_position_is_first_read_while_a_program_is_traced():
    """What reading keeps for later is of NumPy then, too."""
    positions._blank.cache_clear()
    jax.eval_shape(lambda: positions.load(starts()[0]))
    assert positions.dump(positions.load(starts()[0])) == plain(starts()[0])


def test_several_positions_are_a_batch_of_their_states():
    for number in (0, 399):
        one = row(states(), number)
        assert positions.dump(one) == plain(starts()[number])
        jax.tree.map(np.testing.assert_array_equal, one, positions.load(starts()[number]))


BAD = {
    "lacks turn": lambda p: p.pop("turn"),
    "unknown key color": lambda p: p.update(color=1),
    "unknown key 1, color": lambda p: p.update({1: 1, "color": 1}),
    "player row: 6": lambda p: p["player"].__setitem__(0, 6),
    r"player: \[.*\] must have 8 entries": lambda p: p["player"].pop(),
    "player hp: 4": lambda p: p["player"].__setitem__(2, 4),
    "player credits: -1": lambda p: p["player"].__setitem__(3, -1),
    "player attack: 0": lambda p: p["player"].__setitem__(7, 0),
    "exit col: -1": lambda p: p.update(exit=[0, -1]),
    "stage: 9": lambda p: p.update(stage=9),
    "stage: 0": lambda p: p.update(stage=0),
    "show: 2": lambda p: p.update(show=2),
    "turn: -1": lambda p: p.update(turn=-1),
    "owned: 23": lambda p: p.update(owned=[23]),
    "cells kind: 7": lambda p: p.update(cells=[[1, 1, 7, 0, -1, 0, 0, 0, 0, 0]]),
    "cells row: 6": lambda p: p.update(cells=[[6, 1, 0, 0, -1, 0, 1, 0, 0, 0]]),
    "cells program: 23": lambda p: p.update(cells=[[1, 1, 2, 0, 23, 0, 0, 0, 0, 0]]),
    "cells points: 10": lambda p: p.update(cells=[[1, 1, 1, 10, -1, 0, 0, 0, 0, 0]]),
    "cells credits: 4": lambda p: p.update(cells=[[1, 1, 0, 0, -1, 0, 4, 0, 0, 0]]),
    r"cells: .*\[1, 1\].* twice": lambda p: p.update(cells=[[1, 1, 0, 0, -1, 0, 1, 0, 0, 0]] * 2),
    "program blocks have a program": lambda p: p.update(cells=[[1, 1, 2, 0, -1, 0, 0, 0, 0, 0]]),
    "other cells have -1": lambda p: p.update(cells=[[1, 1, 1, 5, 7, 0, 0, 0, 0, 0]]),
    "enemies type: 4": lambda p: p.update(enemies=[[4, 1, 1, 2, 0, 0, 0, 0]]),
    "enemies hp: 0": lambda p: p.update(enemies=[[0, 1, 1, 0, 0, 0, 0, 0]]),
    r"enemies: \[0, 1\] must have 8 entries": lambda p: p.update(enemies=[[0, 1]]),
    "transmissions col: 6": lambda p: p.update(transmissions=[[1, 6, 1, 0, 0, 0]]),
    "transmissions turns: 0": lambda p: p.update(transmissions=[[1, 1, 0, 0, 0, 0]]),
    "transmissions type: -1": lambda p: p.update(transmissions=[[1, 1, 1, -1, 0, 0]]),
    f"at most {MAX_ENTITIES}": lambda p: p.update(enemies=[[0, 1, 1, 2, 0, 0, 0, 0]] * 65),
}


@pytest.mark.parametrize("message", BAD)
def test_a_bad_position_is_refused_in_one_line(message):
    start = plain(position())
    BAD[message](start)
    with pytest.raises(ValueError, match=message) as error:
        positions.load(start)
    assert "\n" not in str(error.value)
