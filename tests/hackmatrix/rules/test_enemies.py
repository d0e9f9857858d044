"""The enemy turn and the masks against the slow reference, on positions that play rarely brings."""

from itertools import permutations, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from games import BATCH, ENV, outcomes, position, run, stacked, step
from hackmatrix import positions
from hackmatrix.rules.programs import Program
from reference import enemy_turns, legal, move, outcome, random_positions

WAIT = run(Program.WAIT)
VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)


@pytest.fixture(scope="module")
def crowds():
    """Positions with shared cells, walled-in players, enemies asleep, and transmissions."""
    return list(random_positions(np.random.default_rng(0), BATCH // 2))


def _after_waiting(states, seed):
    keys = jax.random.split(jax.random.key(seed), BATCH)
    states, _ = step(keys, states, jnp.full(BATCH, WAIT, jnp.int32))
    return [outcome(position) for position in positions.dump_all(states)]


def test_every_enemy_turn_is_a_possible_one(crowds):
    states = stacked([positions.load(each) for each in crowds])
    possible = [enemy_turns(each) for each in crowds]
    for row, ours in enumerate(_after_waiting(states, 0)):
        assert ours in possible[row % len(crowds)], crowds[row % len(crowds)]


def test_every_possible_enemy_turn_happens(crowds):
    varied = [each for each in crowds if 2 <= len(enemy_turns(each)) <= 6][:12]
    assert len(varied) == 12
    for each in varied:
        ours = {outcome(end.position) for end in outcomes(each, WAIT)}
        assert ours == enemy_turns(each), each


def test_the_order_of_moves_is_uniform_and_drawn_anew_for_the_second_step():
    # Three viruses want the one way through, two of them may go through it in a turn.
    walls = [(1, col) for col in range(6) if col != 2]
    enemies = [(VIRUS, 0, 1), (VIRUS, 0, 3), (VIRUS, 0, 2)]
    ends = {}
    for seed in range(4):
        for end in outcomes(position((5, 2), blocks=walls, enemies=enemies), WAIT, seed=seed):
            cells = tuple((e[1], e[2]) for e in end.position["enemies"])
            ends[cells] = ends.get(cells, 0) + end.count
    expected = _chances([(0, 1), (0, 3), (0, 2)], walls, (5, 2))
    assert set(ends) == set(expected)
    counts = [ends[cells] for cells in sorted(ends)]
    chances = [expected[cells] for cells in sorted(ends)]
    assert stats.chisquare(counts, np.multiply(chances, sum(counts))).pvalue > 1e-4


def _chances(cells, walls, player):
    """The chance of each end, by playing every order of both steps in the reference."""
    orders = list(permutations(range(len(cells))))
    ends = {}
    for both in product(orders, orders):
        at = list(cells)
        for i in [*both[0], *both[1]]:
            at[i] = move(VIRUS, at[i], player, set(walls), {*at[:i], *at[i + 1 :]})
        ends[tuple(at)] = ends.get(tuple(at), 0) + 1 / len(orders) ** 2
    return ends


def test_masks_of_positions_that_play_rarely_brings(crowds):
    some = crowds[:128]
    states = stacked([positions.load(each | {"owned": list(range(23))}) for each in some])
    masks = np.asarray(jax.jit(jax.vmap(ENV.action_mask))(states))
    for each, mask in zip(some, masks[: len(some)], strict=True):
        allowed = legal(each | {"owned": list(range(23))})
        assert set(np.flatnonzero(mask).tolist()) == allowed, each
