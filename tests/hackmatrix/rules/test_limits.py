"""Numbers at the end of their bits: nothing wraps, whatever a position begins with."""

import pytest

from games import batch, play, position, run
from hackmatrix import positions
from hackmatrix.positions import _CELL, _ENEMY, _NUMBERS, _PLAYER, _TRANSMISSION
from hackmatrix.rules.entities import MAX_ENTITIES
from hackmatrix.rules.programs import Program

WAIT = run(Program.WAIT)


def largest(entry, **others):
    values = {name: high for name, (_, high) in entry.items()}
    return list((values | others).values())


def ends(starts, *actions):
    return positions.dump_all(play(starts, *actions)[0])


def test_a_position_of_the_largest_numbers_comes_back_as_it_was():
    start = position(
        cells=[largest(_CELL, row=3, col=3, kind=4)],
        enemies=[largest(_ENEMY)] * 30,
        transmissions=[largest(_TRANSMISSION)] * 34,
        **{name: high for name, (_, high) in _NUMBERS.items()},
    ) | {"player": largest(_PLAYER)}
    assert positions.dump_all(batch([start]))[0] == start


def test_delay_never_makes_a_transmission_earlier():
    turns = [1, 32_763, 32_764, 32_765, 32_766, 32_767]
    starts = [position(transmissions=[(4, 4, each, 0, 0, 0)]) for each in turns]
    delayed = [end["transmissions"][0][2] for end in ends(starts, run(Program.DELAY))]
    assert delayed[: len(turns)] == [min(each + 3, 32_767) for each in turns]


@pytest.mark.parametrize(("program", "place"), [(Program.SIPH_PLUS, 5), (Program.ATK_PLUS, 7)])
def test_a_program_adds_to_the_largest_number_of_a_position(program, place):
    many = dict.fromkeys(("siphons", "attack", "credits", "energy", "score"), 32_767)
    player = ends([position(**many)], run(program))[0]["player"]
    assert [player[5], player[7]] == [32_767 + (place == 5), 32_767 + (place == 7)]


def test_where_all_slots_are_taken_nothing_comes_into_being():
    # As many as have room, in heaps: they cannot come to the player.
    walls = [(1, 1), (1, 0), (0, 1)]
    enemies = [[0, 5, n % 5, 2, 9, 0, 0, 0] for n in range(MAX_ENTITIES)]
    starts = [
        position((0, 0), blocks=walls, enemies=enemies[more:], pending=20) for more in range(2)
    ]
    for more, end in enumerate(ends(starts, WAIT)[:2]):
        assert len(end["transmissions"]) == more
        assert [enemy[:4] for enemy in end["enemies"]] == [each[:4] for each in enemies[more:]]
