"""Moves and programs by example: one position for each rule that recordings can hardly show."""

import numpy as np
import pytest
from scipy import stats

from games import RIGHT, outcomes, position, run, the_outcome
from hackmatrix.rules.programs import Program

VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)


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
        assert end.timestep.info["stage_completed"]
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
    assert not end.timestep.action_mask[run(Program.ATK_PLUS)]
