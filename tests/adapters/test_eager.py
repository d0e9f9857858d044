"""Called from Python, adapters compile once, and a step takes milliseconds."""

import jax
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv
from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.adapters.navix import NavixEnv
from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.games import Seat, random_opponent
from python_games import Climb


def rounds():
    from ppo_mask.adapters.pettingzoo import PettingZooEnv
    from zoo_games import Dice

    return PettingZooEnv(Dice)


MAKE = {
    "Gymnasium": lambda: GymnasiumEnv(Climb),
    "with a limit": lambda: pm.TimeLimit(GymnasiumEnv(Climb), 3),
    "PettingZoo": rounds,
    "gymnax": lambda: GymnaxEnv("Catch-bsuite"),
    "navix": lambda: NavixEnv("Navix-Empty-5x5-v0"),
    "pgx": lambda: Seat(PgxGame("tic_tac_toe"), random_opponent),
}


SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("gymnax", "navix")]


@pytest.mark.parametrize("name", ["Gymnasium", "with a limit", "PettingZoo", "pgx", *SLOW])
def test_only_the_first_call_compiles(name, compiled):
    if name in ("PettingZoo", "pgx", "navix"):
        pytest.importorskip(name.lower(), reason=f"pip install 'ppo-mask[{name.lower()}]'")
    env = MAKE[name]()
    state, timestep = env.reset(jax.random.key(0))
    for number in range(3):  # The first states of an episode may have been made elsewhere.
        before = len(compiled())
        action = np.flatnonzero(timestep.action_mask)[-1 if number == 2 else 0]
        state, timestep = env.step(jax.random.key(number), state, int(action))
    env.reset(jax.random.key(1))
    assert compiled()[before:] == []
