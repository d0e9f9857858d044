"""What the scripted policies do in positions that leave no doubt."""

import jax
import numpy as np
import pytest

from games import DOWN, ENV, LEFT, RIGHT, SIPHON, UP, position, run
from hackmatrix import positions
from hackmatrix.play.policies import SCRIPTED
from hackmatrix.rules.programs import Program

VIRUS, DAEMON, GLITCH, CRYPTOG = range(4)


@jax.jit
def probabilities(state):
    seen, mask = ENV.observe(state), ENV.action_mask(state)
    return {name: model(seen, mask)[0].probs for name, model in SCRIPTED.items()}, mask


def choice(name, start):
    """The action that has all the probability."""
    probs = probabilities(positions.load(start))[0][name]
    action = int(np.argmax(probs))
    assert probs[action] == 1
    return action


def test_random_spreads_evenly_over_what_is_allowed():
    probs, mask = probabilities(positions.load(position(enemies=[(VIRUS, 4, 2)])))
    np.testing.assert_allclose(probs["random"], mask / mask.sum(), rtol=1e-6)
    assert 2 < mask.sum() < 28


def test_greedy_exit_takes_the_shortest_way_round_blocks():
    # The exit is at the top right; of two ways, up comes first.
    assert choice("greedy-exit", position((2, 2))) == UP
    assert choice("greedy-exit", position((5, 2))) == RIGHT
    wall = [(5, 3), (4, 3), (3, 3), (4, 1), (3, 1)]
    assert choice("greedy-exit", position((5, 2), blocks=wall)) == DOWN


def test_greedy_exit_attacks_only_who_is_in_its_way():
    assert choice("greedy-exit", position((5, 2), enemies=[(VIRUS, 5, 3)])) == RIGHT
    assert choice("greedy-exit", position((5, 2), enemies=[(VIRUS, 5, 1)])) == RIGHT


def test_greedy_exit_takes_an_allowed_action_where_no_way_is_open():
    cell = [(1, 0), (0, 1)]
    start = position((0, 0), blocks=cell, siphons=1, energy=0, credits=0)
    assert choice("greedy-exit", start) == SIPHON


@pytest.mark.parametrize(
    ("enemies", "action"),
    [
        ([(VIRUS, 2, 0)], LEFT),
        ([(VIRUS, 2, 0), (VIRUS, 1, 2)], DOWN),  # the nearer one
        ([(DAEMON, 3, 2, 3, 0, 0, 0, 0), (VIRUS, 2, 3, 1, 0, 0, 0, 0)], RIGHT),  # the weaker one
        ([(CRYPTOG, 2, 5)], RIGHT),
        ([(VIRUS, 0, 0)], UP),  # out of line: on to the exit
    ],
)
def test_the_fighter_attacks_the_nearest_enemy_in_its_lines(enemies, action):
    assert choice("fighter", position(enemies=enemies)) == action


def test_the_fighter_does_not_attack_through_blocks():
    behind = position(enemies=[(VIRUS, 2, 0)], blocks=[(2, 1)])
    assert choice("fighter", behind) == UP


def test_the_fighter_prefers_enemies_to_transmissions_and_these_to_the_exit():
    both = position(enemies=[(VIRUS, 2, 5)], transmissions=[(1, 2)])
    assert choice("fighter", both) == RIGHT
    assert choice("fighter", position(transmissions=[(1, 2)])) == DOWN
    # A transmission in front of an enemy is what would be hit.
    front = position(enemies=[(VIRUS, 2, 0), (VIRUS, 2, 5)], transmissions=[(2, 1)])
    assert choice("fighter", front) == RIGHT


def test_the_fighter_resets_at_hp_1_unless_there_is_somebody_to_fight():
    assert choice("fighter", position(hp=1)) == run(Program.RESET)
    assert choice("fighter", position(hp=2)) == UP
    assert choice("fighter", position(hp=1, energy=3)) == UP
    assert choice("fighter", position(hp=1, enemies=[(VIRUS, 2, 0)])) == LEFT


def test_they_know_no_value():
    state = positions.load(position())
    for model in SCRIPTED.values():
        assert np.isnan(model(ENV.observe(state), ENV.action_mask(state))[1])
        assert model.hyperparameters == {}
