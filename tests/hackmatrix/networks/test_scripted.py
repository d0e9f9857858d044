"""What the scripted policies do in positions that leave no doubt."""

import jax
import numpy as np
import pytest

from games import DOWN, ENV, LEFT, RIGHT, SIPHON, UP, position, run
from hackmatrix import positions
from hackmatrix.networks.scripted import SCRIPTED
from hackmatrix.rules.programs import Program

VIRUS, DAEMON, _, CRYPTOG = range(4)


@jax.jit
def answers(state):
    """Each policy's probabilities and value, and the mask."""
    seen, mask = ENV.observe(state), ENV.action_mask(state)
    found = {name: model(seen, mask) for name, model in SCRIPTED.items()}
    return {name: (each[0].probs, each[1]) for name, each in found.items()}, mask


def choice(name, start):
    """The action that has all the probability."""
    probs, _ = answers(positions.load(start))[0][name]
    action = int(np.argmax(probs))
    assert probs[action] == 1
    return action


WALL = [(5, 3), (4, 3), (3, 3), (4, 1), (3, 1)]


@pytest.mark.parametrize(
    ("start", "action"),
    [
        # The exit is at the top right; of two ways, up comes first.
        (position((2, 2)), UP),
        (position((5, 2)), RIGHT),
        (position((5, 2), blocks=WALL), DOWN),  # round the blocks
        # It attacks only who is in its way.
        (position((5, 2), enemies=[(VIRUS, 5, 3)]), RIGHT),
        (position((5, 2), enemies=[(VIRUS, 5, 1)]), RIGHT),
        # No way is open: an allowed action.
        (position((0, 0), blocks=[(1, 0), (0, 1)], siphons=1, energy=0, credits=0), SIPHON),
    ],
)
def test_greedy_exit_takes_the_shortest_way(start, action):
    assert choice("greedy-exit", start) == action


LEFT_OF_IT, RIGHT_OF_IT = (VIRUS, 2, 0), (VIRUS, 2, 5)


@pytest.mark.parametrize(
    ("start", "action"),
    [
        # The nearest enemy in its lines, of two the nearer one, and then the weaker one.
        (position(enemies=[LEFT_OF_IT]), LEFT),
        (position(enemies=[LEFT_OF_IT, (VIRUS, 1, 2)]), DOWN),
        (position(enemies=[(DAEMON, 3, 2, 3, 0, 0, 0, 0), (VIRUS, 2, 3, 1, 0, 0, 0, 0)]), RIGHT),
        (position(enemies=[(CRYPTOG, 2, 5)]), RIGHT),
        # Out of line, or behind a block: on to the exit.
        (position(enemies=[(VIRUS, 0, 0)]), UP),
        (position(enemies=[LEFT_OF_IT], blocks=[(2, 1)]), UP),
        # Enemies before transmissions, these before the exit, and who stands in front is hit.
        (position(enemies=[RIGHT_OF_IT], transmissions=[(1, 2)]), RIGHT),
        (position(transmissions=[(1, 2)]), DOWN),
        (position(enemies=[LEFT_OF_IT, RIGHT_OF_IT], transmissions=[(2, 1)]), RIGHT),
        # RESET at hp 1, unless there is somebody to fight, or it costs too much.
        (position(hp=1), run(Program.RESET)),
        (position(hp=2), UP),
        (position(hp=1, energy=3), UP),
        (position(hp=1, enemies=[LEFT_OF_IT]), LEFT),
    ],
)
def test_the_fighter_attacks_and_saves_itself(start, action):
    assert choice("fighter", start) == action


def test_they_know_no_value():
    found, _ = answers(positions.load(position()))
    for name, model in SCRIPTED.items():
        assert np.isnan(found[name][1])
        assert model.hyperparameters == {}
