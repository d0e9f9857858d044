"""Numbers at the end of their bits: nothing wraps, whatever a position begins with."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import BATCH, UP, outcomes, position, run, step, the_outcome
from hackmatrix import HackMatrix, positions
from hackmatrix.env import new_state
from hackmatrix.positions import _CELL, _ENEMY, _NUMBERS, _PLAYER, _TRANSMISSION
from hackmatrix.rules.entities import MAX_ENTITIES
from hackmatrix.rules.game import MAX_TURNS, replace
from hackmatrix.rules.programs import Program
from hackmatrix.rules.spawning import spawn
from hackmatrix.rules.state import keep

WAIT = run(Program.WAIT)
LAST = (1 << 31) - 1


def largest(entry, **others):
    values = {name: high for name, (_, high) in entry.items()}
    return list((values | others).values())


def test_a_position_of_the_largest_numbers_comes_back_as_it_was():
    start = position(
        cells=[largest(_CELL, row=3, col=3, kind=4)],
        enemies=[largest(_ENEMY)] * 30,
        transmissions=[largest(_TRANSMISSION)] * 34,
        **{name: high for name, (_, high) in _NUMBERS.items()},
    ) | {"player": largest(_PLAYER)}
    assert positions.dump(positions.load(start)) == start


def with_numbers(start, **numbers):
    """The state of a position, with numbers that no position has."""
    return jax.jit(lambda state: new_state(replace(state.game, **numbers), 8))(
        positions.load(start)
    )


@pytest.mark.parametrize("steps", [LAST - 2, LAST - 1, LAST])
@pytest.mark.parametrize("action", [UP, WAIT, 4, run(Program.DELAY)])
def test_the_last_step_that_is_counted_is_as_any_other(steps, action):
    start = position(enemies=[(0, 1, 1)], transmissions=[(4, 4)], blocks=[(2, 3)], siphons=3)
    early, late = (with_numbers(start, steps=jnp.int32(n)) for n in (5, steps))
    keys = jax.random.split(jax.random.key(0), BATCH)
    early, late = (
        jax.tree.map(lambda x: jnp.broadcast_to(x, (BATCH, *x.shape)), state)
        for state in (early, late)
    )
    for _ in range(3):
        early, then = step(keys, early, jnp.full(BATCH, action, jnp.int32))
        late, now = step(keys, late, jnp.full(BATCH, action, jnp.int32))
        jax.tree.map(np.testing.assert_array_equal, now, then)
        np.testing.assert_array_equal(late.valid, early.valid)
    assert late.game.steps[0] == min(steps + 3, LAST)


@pytest.mark.slow
@pytest.mark.parametrize("turn", [MAX_TURNS - 1, MAX_TURNS])
def test_the_last_turn_that_is_counted_is_as_any_other(turn):
    start = position(enemies=[(0, 1, 1)], transmissions=[(4, 4, 1, 2, 0, 0)])
    late = with_numbers(start, turn=jnp.int32(turn), next_task=jnp.int32(turn - 3 + 90))
    then, now = outcomes(start, WAIT, WAIT), outcomes(late, WAIT, WAIT)
    assert len(now) == len(then)
    for one, other in zip(now, then, strict=True):
        assert one.position["turn"] == MAX_TURNS
        changed = {"turn": other.position["turn"], "next_task": other.position["next_task"]}
        assert one.position | changed == other.position


@pytest.mark.parametrize("due", [MAX_TURNS, 0])
def test_the_next_spawn_is_after_the_last_turn_that_is_counted(due):
    late = with_numbers(position(), turn=jnp.int32(MAX_TURNS), next_task=jnp.int32(due))
    end = outcomes(late, WAIT)[0].position
    assert (end["next_task"], len(end["transmissions"])) == (MAX_TURNS + 12, 1)


@pytest.mark.parametrize("turns", [1, 32_763, 32_764, 32_765, 32_766, 32_767])
def test_delay_never_makes_a_transmission_earlier(turns):
    start = position(transmissions=[(4, 4, turns, 0, 0, 0)])
    (delayed,) = the_outcome(start, run(Program.DELAY)).position["transmissions"]
    assert delayed[2] == min(turns + 3, 32_767)


@pytest.mark.parametrize("type", range(4))
@pytest.mark.parametrize("hp", [1, 2, 3])
def test_poly_gives_no_enemy_more_hp_than_there_is_room_for(type, hp):
    full = (2, 3, 2, 2)
    for end in outcomes(position(enemies=[(type, 4, 4, hp, 0, 0, 0, 0)]), run(Program.POLY)):
        now = [(enemy[0], enemy[3]) for enemy in end.position["enemies"]]
        for new, left in now:
            assert left == full[new] - max(full[type] - hp, 0)
        assert now or full[type] - hp >= 2


@pytest.mark.parametrize("name", ["attack", "data_siphons", "pending", "atk_uses", "interval"])
@pytest.mark.parametrize("value", [65_535, 65_536, 100_000, LAST])
def test_numbers_of_16_bits_stay_at_their_largest(name, value):
    game = positions.load(position()).game
    of_player = name in {field.name for field in dataclasses.fields(game.player)}

    def part(game):
        return game.player if of_player else game

    large = eqx.tree_at(lambda game: getattr(part(game), name), game, jnp.int32(value))
    kept = keep(large).game
    assert getattr(part(kept), name) == 65_535
    rest = eqx.tree_at(lambda game: getattr(part(game), name), kept, getattr(part(game), name))
    jax.tree.map(np.testing.assert_array_equal, rest, game)


@pytest.mark.parametrize("program", [Program.SIPH_PLUS, Program.ATK_PLUS])
def test_a_program_adds_to_the_largest_number_of_a_position(program):
    start = position(siphons=32_767, attack=32_767, credits=32_767, energy=32_767, score=32_767)
    player = the_outcome(start, run(program)).position["player"]
    more = program == Program.SIPH_PLUS, program == Program.ATK_PLUS
    assert (player[5], player[7]) == (32_767 + more[0], 32_767 + more[1])


def test_where_all_slots_are_taken_nothing_comes_into_being():
    # As many as have room, in heaps: they cannot come to the player.
    walls = [[1, 1], [1, 0], [0, 1]]
    enemies = [[0, 5, n % 5, 2, 9, 0, 0, 0] for n in range(MAX_ENTITIES - 1)]
    start = position((0, 0), exit=[5, 5], blocks=walls, enemies=enemies, pending=20)
    game = outcomes(start, WAIT)[0].position
    assert len(game["transmissions"]) == 1
    assert [enemy[:4] for enemy in game["enemies"]] == [enemy[:4] for enemy in start["enemies"]]
    state = positions.load(start | {"enemies": [*enemies, enemies[0]]})
    after = jax.jit(lambda game, draws: spawn(game, draws, True, jnp.int32(20), True))(
        state.game, _draws()
    )
    jax.tree.map(np.testing.assert_array_equal, after, state.game)


def _draws():
    from hackmatrix.rules.draws import Draws

    return Draws(jax.random.key(0))


def test_stamps_of_list_order_begin_again_when_nobody_has_one():
    many, spawned = (
        jnp.int32((1 << 16) - 1),
        jax.jit(lambda game, draws: spawn(game, draws, False, jnp.int32(2), True)),
    )
    for start, births, arrivals in (
        (position(), 2, 0),
        (position(transmissions=[(4, 4)]), (1 << 16) + 1, 0),
        (position(enemies=[(0, 4, 4)]), 2, (1 << 16) - 1),
    ):
        game = replace(positions.load(start).game, births=many, arrivals=many)
        after = spawned(game, _draws())
        assert (after.births, after.arrivals) == (births, arrivals)


@pytest.mark.parametrize("depth", [0, 1 << 16])
def test_a_history_that_a_state_has_no_numbers_for_is_refused(depth):
    for load in (positions.load, lambda start, depth: positions.load_all([start], depth)):
        with pytest.raises(ValueError, match=f"undo_depth: {depth} is not in 1 to 65535"):
            load(position(), depth)


def test_more_steps_than_are_counted_are_no_limit():
    with pytest.raises(ValueError, match="max_steps must be at most 2147483647 or None, got"):
        HackMatrix(max_steps=1 << 31)
    HackMatrix(max_steps=LAST)
