"""Turns, stages, UNDO, the end of a game and what is seen of it, by example."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import BATCH, ENV, RIGHT, SIPHON, UP, outcomes, position, run, step, the_outcome
from hackmatrix import positions
from hackmatrix.rules.programs import Program
from hackmatrix.rules.rewards import COMPONENTS

VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)
WAIT, UNDO = run(Program.WAIT), run(Program.UNDO)
EVERYWHERE = [(row, col) for row in range(6) for col in range(6)]


def at(end):
    """Where the enemies of an outcome are, in list order."""
    return [(row, col) for _, row, col, *_ in end.position["enemies"]]


def test_step_skips_one_enemy_turn_and_all_that_belongs_to_it():
    start = position(enemies=[(VIRUS, 2, 3)], transmissions=[(0, 0)], pending=2, next_task=4)
    end = the_outcome(start, run(Program.STEP), WAIT)
    same = ("turn", "enemies", "transmissions", "pending", "next_task", "step")
    assert {name: end.position[name] for name in same} == {name: start[name] for name in same}
    assert not end.timestep.action_mask[run(Program.UNDO)]
    assert the_outcome(position(), run(Program.STEP), WAIT, WAIT).position["turn"] == 4


def test_the_schedule_waits_for_its_turn_and_calm_stops_it():
    for end in outcomes(position(next_task=4), WAIT):
        assert [t[2:3] + t[4:] for t in end.position["transmissions"]] == [[1, 0, 1]]
        assert end.position["next_task"] == 4 + 12
    calm = the_outcome(position(next_task=4), run(Program.CALM), WAIT)
    assert (calm.position["transmissions"], calm.position["next_task"]) == ([], 4)


def test_a_siphon_hastens_the_schedule_and_brings_what_its_blocks_hold():
    block = (2, 3, 1, 4, -1, 3, 0, 0, 0, 0)
    for end in outcomes(position(cells=[block]), SIPHON)[:5]:
        assert (end.position["interval"], end.position["next_task"]) == (11, 95)
        assert [t[4:] for t in end.position["transmissions"]] == [[1, 0]] * 3
        assert (end.position["pending"], end.position["player"][6]) == (0, 4)
    assert the_outcome(position(interval=4), SIPHON).position["interval"] == 4


def test_a_transmission_arrives_last_in_the_list_and_sits_out_its_first_turn():
    arriving = (2, 4, 1, DAEMON, 1, 0)
    start = position(enemies=[(CRYPTOG, 0, 0, 2, 0, 1, 0, 0)], transmissions=[(0, 5), arriving])
    end = the_outcome(start, WAIT)
    assert end.position["enemies"][1] == [DAEMON, 2, 4, 3, 0, 0, 1, 0]
    assert end.position["transmissions"] == [[0, 5, 49, 0, 0, 0]]
    assert at(the_outcome(start, WAIT, WAIT))[1] == (2, 3)


def test_a_spawn_stays_out_of_the_line_of_fire_while_it_can():
    in_line = {(r, c) for r, c in EVERYWHERE if r == 2 or c == 2}
    free = {(0, 0), (5, 4)} | in_line - {(2, 2)}
    full = [cell for cell in EVERYWHERE if cell not in free | {(2, 2)}]
    start = position(transmissions=full, pending=3, exit=[0, 0])
    last = [{tuple(t[:2]) for t in e.position["transmissions"][-3:]} for e in outcomes(start, WAIT)]
    assert all({(0, 0), (5, 4)} <= spawned for spawned in last)
    assert set().union(*last) == free


def test_without_an_empty_cell_nothing_spawns():
    full = [cell for cell in EVERYWHERE if cell != (2, 2)]
    end = the_outcome(position(transmissions=full, pending=5, next_task=4), WAIT)
    assert len(end.position["transmissions"]) == 35
    assert (end.position["pending"], end.position["next_task"]) == (0, 16)


def test_the_table_holds_all_that_the_cells_can_bear_and_more():
    full = [(DAEMON, *cell, 3, 0, 0, 0, 0) for cell in EVERYWHERE if cell != (2, 2)]
    for end in outcomes(position(enemies=full, pending=9), run(Program.PUSH), WAIT)[:3]:
        # PUSH heaps up enemies at the border; what spawns takes the cells that are still empty.
        spawned = end.position["transmissions"]
        assert len(at(end)) == 35
        assert spawned
        assert {(2, 2), *at(end), *(tuple(each[:2]) for each in spawned)} == set(EVERYWHERE)


# UNDO


def test_undo_takes_back_the_programs_since_the_last_enemy_turn_their_prices_and_its_own():
    waited = the_outcome(position(), WAIT).position
    end = the_outcome(position(), WAIT, run(Program.SHOW), run(Program.ATK_PLUS), UNDO)
    assert end.position == waited
    assert not end.timestep.action_mask[UNDO]


def test_a_second_undo_takes_back_the_turn_itself():
    start = position(enemies=[(VIRUS, 0, 0)], transmissions=[(5, 0, 2, 1, 0, 0)])
    first = the_outcome(start, WAIT).position
    assert the_outcome(start, WAIT, UP, UNDO, UNDO).position == first


def test_undo_leaves_the_schedule_pending_spawns_and_step_alone():
    end = the_outcome(position(), WAIT, SIPHON, run(Program.STEP), UNDO, UNDO)
    assert end.position["player"][5] == 1
    now = [end.position[name] for name in ("turn", "interval", "next_task", "step")]
    assert now == [4, 11, 95, 1]


def test_undo_goes_back_through_the_newest_eight_turns():
    wait = [WAIT] * 12
    for depth in (1, 8):
        end = the_outcome(position(), *wait, *[UNDO] * depth)
        assert end.position["turn"] == 3 + 12 - depth + 1
        assert end.timestep.action_mask[UNDO] == (depth < 8)


def test_no_undo_into_the_stage_before():
    start = position((5, 4), hp=2)
    for end in outcomes(start, WAIT, RIGHT)[:3]:
        assert end.position["stage"] == 2
        assert not end.timestep.action_mask[UNDO]


# Stages and the end


def test_the_next_stage_keeps_who_is_alive_and_resets_the_rest():
    start = position(
        (5, 4),
        hp=2,
        attack=4,
        enemies=[(DAEMON, 5, 0, 2, 0, 1, 1, 0)],
        transmissions=[(3, 3, 7, 1, 0, 1)],
        pending=2,
        show=1,
        calm=1,
        atk_uses=2,
        stage=3,
    )
    for end in outcomes(start, RIGHT)[:5]:
        new = end.position
        assert new["player"] == [5, 5, 3, 20, 20, 1, 0, 4]
        assert new["enemies"] == [list(enemy) for enemy in start["enemies"]]
        assert new["transmissions"][0] == [3, 3, 7, 1, 0, 1]
        assert [t[2:3] + t[4:] for t in new["transmissions"][1:]] == [[1, 0, 0]] * 4
        numbers = ("stage", "turn", "interval", "next_task", "pending", "show", "calm", "atk_uses")
        assert [new[name] for name in numbers] == [4, 0, 9, 9, 2, 0, 0, 0]
        assert new["owned"] == start["owned"]
        assert end.components == {
            "step_penalty": -0.01,
            "stage_completion": 4,
            "distance_shaping": 0.05,
            "resource_holding": 0.4,
            "hp_recovery": 1,
        }


def test_winning_changes_nothing_but_hp():
    start = position((5, 4), hp=1, stage=8, score=7, enemies=[(VIRUS, 5, 0)], credits=0, energy=0)
    end = the_outcome(start, RIGHT)
    assert end.position == start | {"player": [5, 5, 2, 0, 0, 1, 7, 1]}
    info = end.timestep.info
    assert end.timestep.terminated
    assert info["won"]
    assert not info["died"]
    assert info["stage"] == 8
    assert end.timestep.action_mask.all()
    assert end.components["victory"] == 500 + 100 * 7
    assert end.components["stage_completion"] == 100


def test_the_enemy_turn_is_played_to_its_end_though_the_player_dies_in_it():
    enemies = [(VIRUS, 2, 3, 2, 0, 0, 1, 0), (DAEMON, 5, 2, 3, 0, 0, 0, 0)]
    start = position(hp=1, stage=3, enemies=enemies, pending=1, next_task=4)
    for end in outcomes(start, WAIT)[:3]:
        assert end.timestep.terminated
        assert end.timestep.info["died"]
        assert end.timestep.action_mask.all()
        assert end.position["player"][2] == 0
        assert at(end) == [(2, 3), (4, 2)]
        assert len(end.position["transmissions"]) == 2
        assert end.components["death_penalty"] == -0.5 * (1 + 2)
        assert end.components["siphon_death_penalty"] == -10
        assert end.components["damage_penalty"] == -1


@pytest.mark.parametrize(
    "action", [SIPHON, run(Program.DEBUG), RIGHT, UNDO, -1, 28, 10**6, -(10**6)]
)
def test_an_invalid_action_changes_nothing_and_ends_the_episode(action):
    start = position(siphons=0, blocks=[(2, 3)], enemies=[(VIRUS, 0, 2)], pending=1, step=1)
    end = the_outcome(start, action)
    assert end.position == start
    assert end.components == {}
    timestep = end.timestep
    assert timestep.reward == 0
    assert timestep.terminated
    assert not timestep.truncated
    assert timestep.info["invalid_action"]
    assert not (timestep.info["died"] | timestep.info["won"] | timestep.info["stage_completed"])
    assert timestep.action_mask.all()


def test_a_player_walled_in_with_nothing_to_run_may_try_anything():
    start = position((0, 0), blocks=[(0, 1), (1, 0)], siphons=0, owned=[])
    assert not ENV.action_mask(positions.load(start)).any()
    walk = position((0, 2), blocks=[(0, 1)], owned=[], siphons=1, cells=[])
    assert not the_outcome(walk, SIPHON).timestep.action_mask.all()


# What is seen


@pytest.fixture(scope="module")
def look():
    observe = jax.jit(ENV.observe)

    def grid(start):
        return np.asarray(observe(positions.load(start)))[33:].reshape(6, 6, 42)

    return grid


def test_a_question_block_is_seen_but_not_its_content(look):
    data, program = (1, 1, 3, 5, -1, 5, 0, 0, 0, 0), (2, 3, 4, 0, 7, 2, 0, 3, 0, 0)
    start = position(cells=[data, program])
    for row, col in ((1, 1), (2, 3)):
        assert np.flatnonzero(look(start)[row, col]).tolist() == [9]
    end = max(outcomes(start, SIPHON), key=lambda end: end.count)
    assert [2, 3, 2, 0, 7, 0, 0, 3, 1, 0] in end.position["cells"]
    assert np.flatnonzero(look(end.position)[2, 3]).tolist() == [8, 11, 12 + 7, 38]


@pytest.mark.parametrize("place", [(3, 3), (2, 5), (0, 2)])
@pytest.mark.parametrize("show", [0, 1])
def test_a_cryptog_is_seen_in_the_players_lines_or_with_show(look, place, show):
    cell = look(position(show=show, enemies=[(CRYPTOG, *place, 2, 0, 1, 1, 0)]))[place]
    seen = show or place != (3, 3)
    assert np.flatnonzero(cell).tolist() == ([3, 4, 5, 6] if seen else [])


def test_a_hidden_cryptog_hides_who_comes_after_it_on_its_cell(look):
    hidden = look(position(enemies=[(CRYPTOG, 3, 3), (VIRUS, 3, 3)]))[3, 3]
    assert not hidden.any()
    first = look(position(enemies=[(VIRUS, 3, 3), (CRYPTOG, 3, 3)]))[3, 3]
    assert np.flatnonzero(first).tolist() == [0, 4]


@pytest.mark.parametrize("show", [0, 1])
def test_the_type_of_a_transmission_is_never_seen(look, show):
    views = [look(position(show=show, transmissions=[(1, 1, 2, type, 0, 0)])) for type in range(4)]
    assert all(np.array_equal(view, views[0]) for view in views)
    assert np.flatnonzero(views[0][1, 1]).tolist() == [36]


def test_the_components_are_named_and_sum_to_the_reward():
    keys = jax.random.split(jax.random.key(0), BATCH)
    states, _ = jax.jit(jax.vmap(ENV.reset))(keys)
    _, timestep = step(keys, states, jnp.full(BATCH, RIGHT, jnp.int32))
    names = [name for name in timestep.info if name.startswith("reward/")]
    assert sorted(names) == sorted(f"reward/{name}" for name in COMPONENTS)
    total = sum(np.asarray(timestep.info[name], np.float64) for name in names)
    np.testing.assert_allclose(timestep.reward, total, rtol=1e-5, atol=1e-6)
