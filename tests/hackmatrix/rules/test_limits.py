"""Numbers at the end of their bits: nothing wraps, whatever a position begins with."""

import jax
import numpy as np
import pytest

from games import BATCH, SIPHON, UP, batch, play, position, run, step
from hackmatrix import positions
from hackmatrix.positions import _CELL, _ENEMY, _NUMBERS, _PLAYER, _TRANSMISSION, _game, _to_states
from hackmatrix.rules.entities import MAX_ENTITIES
from hackmatrix.rules.game import MAX_TURNS, replace
from hackmatrix.rules.programs import Program
from hackmatrix.rules.state import pack

WAIT = run(Program.WAIT)
LAST = (1 << 31) - 1
SATURATED = ("attack", "data_siphons", "pending", "atk_uses", "interval")


def largest(entry, **others):
    values = {name: high for name, (_, high) in entry.items()}
    return list((values | others).values())


def with_numbers(start, **numbers):
    """A batch of states of a position with numbers that no position has, one for each in turn."""
    game = jax.tree.map(lambda x: np.broadcast_to(x, (BATCH, *np.shape(x))), _game(start))
    values = {name: np.resize(value, BATCH).astype(np.int32) for name, value in numbers.items()}
    return _to_states(replace(game, **values), 8)


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


@pytest.mark.slow
def test_the_last_step_that_is_counted_is_as_any_other():
    start = position(enemies=[(0, 1, 1)], transmissions=[(4, 4)], blocks=[(2, 3)], siphons=3)
    counted = np.array([5, LAST - 2, LAST - 1, LAST])
    states, groups = with_numbers(start, steps=counted), BATCH // len(counted)
    actions = np.repeat(np.array([UP, WAIT, SIPHON, run(Program.DELAY)], np.int32), groups)
    for turn in range(2):
        keys = jax.random.split(jax.random.key(turn), groups)[np.arange(BATCH) // len(counted)]
        states, timestep, *_ = jax.device_get(step(keys, states, actions))
        for leaf in jax.tree.leaves((timestep, states.valid)):
            grouped = leaf.reshape(groups, len(counted), -1)
            np.testing.assert_array_equal(grouped, np.repeat(grouped[:, :1], len(counted), axis=1))
    wanted = np.minimum(np.resize(counted, BATCH) + 2, LAST)
    np.testing.assert_array_equal(states.game.steps, wanted)


def test_the_last_turn_that_is_counted_is_as_any_other():
    turns = np.array([3, MAX_TURNS - 1, MAX_TURNS])
    start = position(enemies=[(0, 1, 1)], transmissions=[(4, 4, 1, 2, 0, 0)])
    then, *late = ends(with_numbers(start, turn=turns, next_task=turns + 87), WAIT, WAIT)[:3]
    for now in late:
        assert now["turn"] == MAX_TURNS
        assert now | {name: then[name] for name in ("turn", "next_task")} == then


def test_the_next_spawn_is_after_the_last_turn_that_is_counted():
    late = with_numbers(position(), turn=MAX_TURNS, next_task=[MAX_TURNS, 0])
    for end in ends(late, WAIT)[:2]:
        assert (end["next_task"], len(end["transmissions"])) == (MAX_TURNS + 12, 1)


def test_delay_never_makes_a_transmission_earlier():
    turns = [1, 32_763, 32_764, 32_765, 32_766, 32_767]
    starts = [position(transmissions=[(4, 4, each, 0, 0, 0)]) for each in turns]
    delayed = [end["transmissions"][0][2] for end in ends(starts, run(Program.DELAY))]
    assert delayed[: len(turns)] == [min(each + 3, 32_767) for each in turns]


def test_numbers_of_16_bits_stay_at_their_largest():
    games, start = [], _game(position())
    values = [65_535, 65_536, 100_000, LAST]
    for name in SATURATED:
        for value in map(np.int32, values):
            if hasattr(start.player, name):
                games.append(replace(start, player=replace(start.player, **{name: value})))
            else:
                games.append(replace(start, **{name: value}))
    stacked = jax.tree.map(lambda *x: np.stack(x), *games)
    packed = jax.device_get(jax.jit(jax.vmap(lambda game: pack(game).game))(stacked))
    for first, name in zip(range(0, len(games), len(values)), SATURATED, strict=True):
        for row in range(first, first + len(values)):
            game = jax.tree.map(lambda x, row=row: x[row], packed)
            part = game.player if hasattr(game.player, name) else game
            assert getattr(part, name) == 65_535
            back = replace(part, **{name: getattr(start.player, name, getattr(start, name, 0))})
            rest = replace(game, player=back) if part is game.player else back
            jax.tree.map(np.testing.assert_array_equal, rest, start)


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


@pytest.mark.parametrize(
    ("start", "births", "arrivals"),
    [
        (position(pending=2), 2, 0),
        (position(pending=2, transmissions=[(4, 4)]), (1 << 16) + 1, 0),
        (position(pending=2, enemies=[(0, 4, 4)]), 2, (1 << 16) - 1),
    ],
)
def test_stamps_of_list_order_begin_again_when_nobody_has_one(start, births, arrivals):
    many = (1 << 16) - 1
    game = play(with_numbers(start, births=many, arrivals=many), WAIT)[0].game
    assert (game.births[0], game.arrivals[0]) == (births, arrivals)


@pytest.mark.parametrize("depth", [0, 1 << 16])
def test_a_history_that_a_state_has_no_numbers_for_is_refused(depth):
    for load in (positions.load, lambda start, depth: positions.load_all([start], depth)):
        with pytest.raises(ValueError, match=f"undo_depth: {depth} is not in 1 to 65535"):
            load(position(), depth)
