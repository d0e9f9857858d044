"""The plain rules by example: one position for each rule that recordings can hardly show.

That the fast game does the same is seen in ``test_engine.py``.
"""

from itertools import permutations, product

import numpy as np
import pytest
from scipy import stats

from games import (
    CRYPTOG,
    DAEMON,
    GLITCH,
    RIGHT,
    SIPHON,
    UP,
    VIRUS,
    outcomes,
    position,
    run,
    the_outcome,
)
from hackmatrix.rules import plain
from hackmatrix.rules.plain.turns import destination
from hackmatrix.rules.programs import Program

WAIT, UNDO = run(Program.WAIT), run(Program.UNDO)


def at(end):
    """Where the enemies of an outcome are, in list order."""
    return [(row, col) for _, row, col, *_ in end.position["enemies"]]


def where(end):
    """Where the player is."""
    return tuple(end.position["player"][:2])


# Moving and attacking


@pytest.mark.parametrize("first", [VIRUS, DAEMON])
def test_an_attack_hits_the_first_in_list_order_on_a_shared_cell(first):
    second = DAEMON if first == VIRUS else VIRUS
    enemies = [(first, 2, 5, 1, 0, 0, 0, 0), (second, 2, 5, 1, 0, 1, 0, 0)]
    end = the_outcome(position(enemies=enemies), RIGHT)
    assert [enemy[0] for enemy in end.position["enemies"]] == [second]
    assert end.components["kills"] == 0.3


def test_an_attack_hits_the_transmission_before_the_enemies_on_its_cell():
    start = position(enemies=[(DAEMON, 2, 4)], transmissions=[(2, 4), (2, 5)])
    end = the_outcome(start, RIGHT)
    assert [t[:2] for t in end.position["transmissions"]] == [[2, 5]]
    assert end.position["enemies"][0][3] == 2
    assert where(end) == (2, 2)


def test_a_block_ends_the_line_of_an_attack_and_an_enemy_on_it_is_hit():
    behind = position(blocks=[(2, 4)], enemies=[(DAEMON, 2, 5, 1, 0, 1, 0, 0)])
    assert where(the_outcome(behind, RIGHT)) == (2, 3)
    on_it = position(blocks=[(2, 3)], enemies=[(GLITCH, 2, 3, 1, 0, 0, 0, 0)])
    assert at(the_outcome(on_it, RIGHT)) == []


def test_who_survives_an_attack_is_stunned_and_does_not_act():
    end = the_outcome(position(enemies=[(DAEMON, 2, 3, 3, 0, 0, 0, 0)]), RIGHT)
    assert end.position["enemies"] == [[DAEMON, 2, 3, 2, 0, 0, 0, 0]]
    assert "damage_penalty" not in end.components


def test_a_pickup_gives_a_data_siphon_and_leaves_the_cells_resources():
    end = the_outcome(position(cells=[(2, 3, 5, 0, -1, 0, 2, 0, 0, 0)]), RIGHT)
    assert end.position["player"][5] == 2
    assert [2, 3, 0, 0, -1, 0, 2, 0, 0, 0] in end.position["cells"]
    assert end.components["data_siphon"] == 1


# Programs


def test_push_goes_far_and_pull_comes_near_with_ties_in_order():
    enemies = [(VIRUS, 3, 3), (VIRUS, 2, 0), (VIRUS, 5, 3), (VIRUS, 5, 2)]
    pushed = the_outcome(position(enemies=enemies), run(Program.PUSH))
    assert at(pushed) == [(4, 4), (2, 0), (5, 4), (5, 2)]
    pulled = the_outcome(position(enemies=enemies), run(Program.PULL))
    # (5, 3) comes first in list order and takes (4, 2); (5, 2) wants it too, and tries no other.
    assert at(pulled) == [(2, 3), (2, 1), (4, 2), (5, 2)]


def test_only_an_enemy_that_has_moved_holds_its_cell_against_pull():
    # The nearer enemy has no cell to go to but the player's; it stays, and the other joins it.
    end = the_outcome(position(enemies=[(VIRUS, 2, 3), (VIRUS, 2, 4)]), run(Program.PULL))
    assert at(end) == [(2, 3), (2, 3)]


def test_blocks_and_transmissions_do_not_stop_a_push():
    start = position(
        blocks=[(2, 4)], enemies=[(VIRUS, 2, 3), (VIRUS, 4, 2)], transmissions=[(5, 2)]
    )
    assert at(the_outcome(start, run(Program.PUSH))) == [(2, 4), (5, 2)]


def test_warp_takes_one_entity_of_all_and_what_is_of_its_kind_there():
    start = position(enemies=[(VIRUS, 4, 4), (DAEMON, 4, 4)], transmissions=[(4, 4), (0, 0)])
    ends = outcomes(start, run(Program.WARP))
    seen = {(where(end), len(at(end)), len(end.position["transmissions"])): end for end in ends}
    onto_enemies, onto_first, onto_second = ((4, 4), 0, 2), ((4, 4), 2, 1), ((0, 0), 2, 1)
    assert set(seen) == {onto_enemies, onto_first, onto_second}
    counts = [seen[each].count for each in (onto_enemies, onto_first, onto_second)]
    assert stats.chisquare(counts, np.array([0.5, 0.25, 0.25]) * sum(counts)).pvalue > 1e-4
    assert all(end.components["kills"] == 0.3 for end in ends)


def test_warp_counts_only_the_first_in_list_order_and_not_what_the_schedule_brought():
    enemies = [(VIRUS, 4, 4, 2, 0, 0, 0, 1), (DAEMON, 4, 4)]
    assert "kills" not in the_outcome(position(enemies=enemies), run(Program.WARP)).components


def test_warp_collects_no_pickup_and_completes_the_stage_on_the_exit():
    start = position(enemies=[(VIRUS, 0, 0)], cells=[(0, 0, 5, 0, -1, 0, 0, 0, 0, 0)])
    end = the_outcome(start, run(Program.WARP))
    assert end.position["player"][5] == 1
    assert [0, 0, 5, 0, -1, 0, 0, 0, 0, 0] in end.position["cells"]
    for end in outcomes(position(enemies=[(VIRUS, 5, 5)]), run(Program.WARP)):
        assert end.result.completed
        assert end.position["stage"] == 2
        assert where(end) == (5, 5)


def test_crash_clears_the_cells_around_but_for_resources_and_flags():
    start = position(
        cells=[(2, 3, 2, 0, 7, 2, 0, 3, 1, 1)],
        enemies=[(VIRUS, 3, 3), (VIRUS, 3, 3), (VIRUS, 2, 4)],
        transmissions=[(3, 3)],
    )
    end = the_outcome(start, run(Program.CRASH))
    assert [2, 3, 0, 0, -1, 0, 0, 3, 1, 1] in end.position["cells"]
    assert at(end) == [(2, 4)]
    assert end.position["transmissions"] == []
    assert end.components["kills"] == pytest.approx(0.6)


def test_poly_carries_damage_over():
    ends = outcomes(position(enemies=[(DAEMON, 4, 4, 1, 0, 0, 0, 0)]), run(Program.POLY))
    assert [at(end) for end in ends] == [[]]
    assert ends[0].components["kills"] == 0.3
    ends = outcomes(position(enemies=[(VIRUS, 4, 4, 1, 0, 0, 0, 0)]), run(Program.POLY))
    hp = {end.position["enemies"][0][0]: end.position["enemies"][0][3] for end in ends}
    assert hp == {DAEMON: 2, GLITCH: 1, CRYPTOG: 1}
    assert stats.chisquare([end.count for end in ends]).pvalue > 1e-4


def test_d_bom_takes_the_nearest_daemon_and_the_first_of_equals():
    enemies = [(DAEMON, 2, 5, 3, 0, 0, 0, 0), (DAEMON, 5, 2, 3, 0, 0, 0, 0), (VIRUS, 3, 4)]
    end = the_outcome(position(enemies=enemies), run(Program.D_BOM))
    assert end.position["enemies"] == [[DAEMON, 5, 2, 3, 0, 0, 0, 0], [VIRUS, 3, 4, 1, 0, 1, 0, 0]]


def test_reduc_leaves_siphoned_blocks_and_no_count_under_0():
    counts = ((3, 0), (0, 0), (3, 1))  # spawn count, siphoned
    cells = [(0, n, 1, 5, -1, count, 0, 0, done, 0) for n, (count, done) in enumerate(counts)]
    end = the_outcome(position(cells=cells), run(Program.REDUC))
    assert [cell[5] for cell in end.position["cells"][:3]] == [2, 0, 3]


def test_attack_has_no_cap_and_atk_plus_two_uses_a_stage():
    end = the_outcome(position(attack=5), run(Program.ATK_PLUS), run(Program.ATK_PLUS))
    assert end.position["player"][7] == 7
    assert run(Program.ATK_PLUS) not in end.legal


# Turns


def test_step_skips_one_enemy_turn_and_all_that_belongs_to_it():
    start = position(enemies=[(VIRUS, 2, 3)], transmissions=[(0, 0)], pending=2, next_task=4)
    end = the_outcome(start, run(Program.STEP), WAIT)
    same = ("turn", "enemies", "transmissions", "pending", "next_task", "step")
    assert {name: end.position[name] for name in same} == {name: start[name] for name in same}
    assert run(Program.UNDO) not in end.legal
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
    in_line = {(r, c) for r, c in plain.BOARD if r == 2 or c == 2}
    free = {(0, 0), (5, 4)} | in_line - {(2, 2)}
    full = [cell for cell in plain.BOARD if cell not in free | {(2, 2)}]
    start = position(transmissions=full, pending=3, exit=[0, 0])
    last = [{tuple(t[:2]) for t in e.position["transmissions"][-3:]} for e in outcomes(start, WAIT)]
    assert all({(0, 0), (5, 4)} <= spawned for spawned in last)
    assert set().union(*last) == free


def test_without_an_empty_cell_nothing_spawns():
    full = [cell for cell in plain.BOARD if cell != (2, 2)]
    end = the_outcome(position(transmissions=full, pending=5, next_task=4), WAIT)
    assert len(end.position["transmissions"]) == 35
    assert (end.position["pending"], end.position["next_task"]) == (0, 16)


def test_the_table_holds_all_that_the_cells_can_bear_and_more():
    full = [(DAEMON, *cell, 3, 0, 0, 0, 0) for cell in plain.BOARD if cell != (2, 2)]
    for end in outcomes(position(enemies=full, pending=9), run(Program.PUSH), WAIT)[:3]:
        # PUSH heaps up enemies at the border; what spawns takes the cells that are still empty.
        spawned = end.position["transmissions"]
        assert len(at(end)) == 35
        assert spawned
        assert {(2, 2), *at(end), *(tuple(each[:2]) for each in spawned)} == set(plain.BOARD)


# UNDO


def test_undo_takes_back_the_programs_since_the_last_enemy_turn_their_prices_and_its_own():
    waited = the_outcome(position(), WAIT).position
    end = the_outcome(position(), WAIT, run(Program.SHOW), run(Program.ATK_PLUS), UNDO)
    assert end.position == waited
    assert UNDO not in end.legal


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
        assert (UNDO in end.legal) == (depth < 8)


def test_no_undo_into_the_stage_before():
    start = position((5, 4), hp=2)
    for end in outcomes(start, WAIT, RIGHT)[:3]:
        assert end.position["stage"] == 2
        assert UNDO not in end.legal


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
    assert end.result.won
    assert not end.result.died
    assert end.components["victory"] == 500 + 100 * 7
    assert end.components["stage_completion"] == 100


def test_the_enemy_turn_is_played_to_its_end_though_the_player_dies_in_it():
    enemies = [(VIRUS, 2, 3, 2, 0, 0, 1, 0), (DAEMON, 5, 2, 3, 0, 0, 0, 0)]
    start = position(hp=1, stage=3, enemies=enemies, pending=1, next_task=4)
    for end in outcomes(start, WAIT)[:3]:
        assert end.result.died
        assert end.position["player"][2] == 0
        assert at(end) == [(2, 3), (4, 2)]
        assert len(end.position["transmissions"]) == 2
        assert end.components["death_penalty"] == -0.5 * (1 + 2)
        assert end.components["siphon_death_penalty"] == -10
        assert end.components["damage_penalty"] == -1


@pytest.mark.parametrize("action", [SIPHON, run(Program.DEBUG), RIGHT, UNDO, -1, 28])
def test_an_invalid_action_changes_nothing_and_ends_the_game(action):
    start = position(siphons=0, blocks=[(2, 3)], enemies=[(VIRUS, 0, 2)], pending=1, step=1)
    end = the_outcome(start, action)
    assert end.position == start
    assert end.components == {}
    assert end.result.invalid_action
    assert end.result.over


def test_the_order_of_moves_is_drawn_anew_for_the_second_step():
    # Three viruses want the one way through, two of them may go through it in a turn.
    walls = [(1, col) for col in range(6) if col != 2]
    cells = [(0, 1), (0, 3), (0, 2)]
    start = position((5, 2), blocks=walls, enemies=[(VIRUS, *cell) for cell in cells])
    ends = {tuple(at(end)): end.count for end in outcomes(start, WAIT, tries=600)}
    expected = _chances(cells, walls, (5, 2))
    assert set(ends) == set(expected)
    chances = [600 * expected[end] for end in ends]
    assert stats.chisquare(list(ends.values()), chances).pvalue > 1e-4


def _chances(cells, walls, player):
    """The chance of each end, by playing every order of both steps."""
    orders = list(permutations(range(len(cells))))
    ends = {}
    for first, second in product(orders, orders):
        now = list(cells)
        for i in (*first, *second):
            others = {*now[:i], *now[i + 1 :]}
            now[i] = destination(VIRUS, now[i], player, set(walls), others)
        ends[tuple(now)] = ends.get(tuple(now), 0) + 1 / len(orders) ** 2
    return ends


# What is seen


def look(start, cell):
    """The channels of a cell that are not 0."""
    seen = np.reshape(plain.observe(plain.load(start))[33:], (6, 6, 42))
    return np.flatnonzero(seen[cell]).tolist()


def test_a_question_block_is_seen_but_not_its_content():
    data, program = (1, 1, 3, 5, -1, 5, 0, 0, 0, 0), (2, 3, 4, 0, 7, 2, 0, 3, 0, 0)
    start = position(cells=[data, program])
    assert look(start, (1, 1)) == look(start, (2, 3)) == [9]
    end = outcomes(start, SIPHON)[0]
    assert [2, 3, 2, 0, 7, 0, 0, 3, 1, 0] in end.position["cells"]
    assert look(end.position, (2, 3)) == [8, 11, 12 + 7, 38]


@pytest.mark.parametrize("place", [(3, 3), (2, 5), (0, 2)])
@pytest.mark.parametrize("show", [0, 1])
def test_a_cryptog_is_seen_in_the_players_lines_or_with_show(place, show):
    cell = look(position(show=show, enemies=[(CRYPTOG, *place, 2, 0, 1, 1, 0)]), place)
    assert cell == ([3, 4, 5, 6] if show or place != (3, 3) else [])


def test_a_hidden_cryptog_hides_who_comes_after_it_on_its_cell():
    assert look(position(enemies=[(CRYPTOG, 3, 3), (VIRUS, 3, 3)]), (3, 3)) == []
    assert look(position(enemies=[(VIRUS, 3, 3), (CRYPTOG, 3, 3)]), (3, 3)) == [0, 4]


@pytest.mark.parametrize("show", [0, 1])
def test_the_type_of_a_transmission_is_never_seen(show):
    for type in range(4):
        assert look(position(show=show, transmissions=[(1, 1, 2, type, 0, 0)]), (1, 1)) == [36]
