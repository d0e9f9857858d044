"""What is imagined looks the same, and is as the generators of the game would have it."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import CRYPTOG, VIRUS, position
from hackmatrix import HackMatrix, positions
from hackmatrix.rules.entities import NUM_TYPES
from hackmatrix.rules.programs import CARDS, Program
from ppo_mask.envs import VectorEnv
from ppo_mask.networks import MaskedCategorical
from recorded import states

ENV = HackMatrix()
DATA, PROGRAM, QUESTION_DATA, QUESTION_PROGRAM = 1, 2, 3, 4
NONE = -1


@jax.jit
@jax.vmap
def imagine(key: Any, state: Any) -> Any:
    """What is imagined, with what a game would show of it and of the state."""
    drawn = ENV.imagine(key, state)
    return (
        drawn.state,
        (ENV.observe(drawn.state), ENV.action_mask(drawn.state)),
        (drawn.observation, drawn.action_mask),
        (ENV.observe(state), ENV.action_mask(state)),
    )


def imagine_all(given: Any, seed: int) -> Any:
    count = len(given.packed.numbers)
    return jax.device_get(imagine(jax.random.split(jax.random.key(seed), count), given))


def assert_alike(given: Any, seed: int) -> Any:
    drawn, shown, said, wanted = imagine_all(given, seed)
    jax.tree.map(np.testing.assert_array_equal, shown, wanted)
    jax.tree.map(
        np.testing.assert_array_equal,
        said,
        (wanted[0], wanted[1] | ~wanted[1].any(-1, keepdims=True)),
    )
    return drawn


def test_recorded_positions_look_the_same():
    given = states()
    drawn = assert_alike(given, 0)
    assert (given.packed.facts != drawn.packed.facts).any(axis=-1).mean() > 0.2


@pytest.mark.slow
def test_ten_thousand_positions_look_the_same():
    env = VectorEnv(HackMatrix(starting_weights=jnp.ones(8)), 400)

    @jax.jit
    def play(key: Any, state: Any, mask: Any) -> Any:
        action_key, step_key = jax.random.split(key)
        keys = jax.random.split(action_key, 400)
        action = jax.vmap(lambda k, m: MaskedCategorical(jnp.zeros(28), m).sample(k))(keys, mask)
        state, timestep = env.step(step_key, state, action)
        return state, timestep.action_mask

    state, timestep = jax.jit(lambda key: env.reset(key))(jax.random.key(0))
    mask, moved = timestep.action_mask, 0
    for n in range(250):
        state, mask = play(jax.random.key(n), state, mask)
        if n % 10 == 9:  # 25 times 400 positions.
            drawn = assert_alike(state.env_state, n)
            moved += (drawn.occupied.enemies.lo != state.env_state.occupied.enemies.lo).sum()
    assert moved > 100


BLOCKS = [(0, 1), (1, 3), (3, 1), (4, 4), (5, 2)]


def drawn_from(count: int = 4000, **changes: Any) -> list[dict[str, Any]]:
    """What is imagined in a position, many times."""
    kinds = [QUESTION_DATA, QUESTION_PROGRAM, QUESTION_DATA]
    cells = [[*BLOCKS[0], kinds[0], 7, NONE, 7, 0, 0, 0, 0]]
    cells += [[*BLOCKS[1], kinds[1], 0, Program.UNDO, 3, 0, 0, 0, 0]]
    cells += [[*BLOCKS[2], kinds[2], 4, NONE, 4, 0, 0, 0, 0]]
    cells += [[*BLOCKS[3], PROGRAM, 0, Program.WAIT, 1, 0, 0, 0, 0]]
    cells += [[*BLOCKS[4], DATA, 9, NONE, 9, 0, 0, 0, 0]]
    given = {
        "cells": cells,
        "enemies": [[CRYPTOG, 0, 0, 2, 0, 0, 0, 0], [VIRUS, 3, 3, 2, 0, 0, 0, 0]],
        "transmissions": [[5, 5, 1, CRYPTOG, 0, 0], [0, 5, 3, VIRUS, 1, 0]],
    }
    one = positions.load(position((2, 2), **(given | changes)))
    many = jax.tree.map(lambda x: np.broadcast_to(x, (400, *x.shape)), one)
    found: list[dict[str, Any]] = []
    for seed in range(count // 400):
        found += positions.dump_all(imagine_all(many, seed)[0])
    return found


def near(found: Any, wanted: Any, count: int) -> None:
    """Frequencies within 4.5 standard deviations."""
    wanted = np.asarray(wanted, float)
    spread = np.sqrt(wanted * (1 - wanted) / count)
    np.testing.assert_array_less(np.abs(np.asarray(found) / count - wanted), 4.5 * spread + 1e-9)


def test_what_is_imagined_is_as_the_generators_have_it():
    found = drawn_from()
    count = len(found)
    at = [{(cell[0], cell[1]): cell[2:] for cell in each["cells"]} for each in found]
    hidden = np.array([[cells[place] for place in BLOCKS[:3]] for cells in at])
    kind, points, program, spawn_count = np.moveaxis(hidden[..., :4], -1, 0)
    has_program = kind == QUESTION_PROGRAM
    assert set(np.unique(kind)) == {QUESTION_DATA, QUESTION_PROGRAM}
    near(has_program.sum(0), [0.5] * 3, count)
    near((has_program.sum(1) == 3).sum(), 1 / 8, count)
    for block in range(3):
        own = points[~has_program[:, block], block]
        near(np.bincount(own, minlength=10)[1:], [1 / 9] * 9, len(own))
        own = program[has_program[:, block], block]
        wanted = np.full(23, 1 / 22)
        wanted[Program.WAIT] = 0  # It is in sight.
        near(np.bincount(own, minlength=23), wanted, len(own))
    for row in np.where(has_program, program, -1 - np.arange(3)):
        assert len(set(row)) == 3  # No program twice.
    prices = np.array([card.spawn_count for card in CARDS])
    np.testing.assert_array_equal(spawn_count, np.where(has_program, prices[program], points))
    assert all(cells[BLOCKS[3]] == at[0][BLOCKS[3]] for cells in at)  # What is seen stays.
    assert all(cells[BLOCKS[4]] == at[0][BLOCKS[4]] for cells in at)

    types = np.array([[entity[3] for entity in each["transmissions"]] for each in found])
    for slot in range(2):
        near(np.bincount(types[:, slot], minlength=4), [1 / NUM_TYPES] * 4, count)

    cryptogs = [each["enemies"][0] for each in found]
    assert all(each["enemies"][1] == found[0]["enemies"][1] for each in found)
    assert {tuple(cryptog[3:]) for cryptog in cryptogs} == {(2, 0, 0, 0, 0)}
    room = np.ones((6, 6), bool)
    room[2], room[:, 2] = False, False
    for place in [*BLOCKS, (3, 3), (5, 5), (0, 5)]:
        room[place] = False
    places = np.zeros((6, 6))
    for cryptog in cryptogs:
        places[cryptog[1], cryptog[2]] += 1
    near(places, room / room.sum(), count)


def test_reductions_are_taken_off_and_the_mask_shows_what_it_shows():
    cells = [[0, 1, QUESTION_DATA, 7, NONE, 5, 0, 0, 0, 0], [5, 4, DATA, 9, NONE, 7, 0, 0, 0, 0]]
    for each in drawn_from(400, cells=cells):
        kind, points, program, spawn_count = each["cells"][0][2:6]
        full = points if kind == QUESTION_DATA else CARDS[program].spawn_count
        assert spawn_count == max(full - 2, 0)
    # With nothing else in reach, only the cryptog lets CRASH run: so it stays.
    beside = [[CRYPTOG, 1, 1, 2, 0, 0, 0, 0]]
    nothing = {"cells": [], "transmissions": []}
    for each in drawn_from(400, enemies=beside, **nothing):
        assert abs(each["enemies"][0][1] - 2) == abs(each["enemies"][0][2] - 2) == 1
