"""The game as an environment: the protocol's laws, its parameters, truncation and UNDO's depth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import RIGHT, position, run
from hackmatrix import HackMatrix, positions
from hackmatrix.rules.programs import Program
from ppo_mask.envs import check_env

WAIT, UNDO = run(Program.WAIT), run(Program.UNDO)
MAX_STEPS, DEPTH = 16, 12


@pytest.fixture(scope="module")
def limited():
    """An environment with other parameters than most tests have, and its compiled step."""
    env = HackMatrix(undo_depth=DEPTH, max_steps=MAX_STEPS)
    step = jax.jit(env.step)

    def play(state, *actions):
        for number, action in enumerate(actions):
            state, timestep = step(jax.random.key(number), state, jnp.int32(action))
        return state, timestep

    return play


@pytest.mark.parametrize(
    "env", [HackMatrix(), HackMatrix(undo_depth=9, max_steps=20)], ids=["default", "limited"]
)
@pytest.mark.slow
def test_the_laws_of_the_protocol_hold(env):
    check_env(env)


@pytest.mark.parametrize("depth", [7, 0, -1])
def test_the_history_holds_eight_positions_at_least(depth):
    with pytest.raises(ValueError, match=f"undo_depth must be at least 8, got {depth}"):
        HackMatrix(undo_depth=depth)


def test_a_limit_of_no_steps_is_refused():
    with pytest.raises(ValueError, match="max_steps must be at least 1 or None, got 0"):
        HackMatrix(max_steps=0)


def test_a_history_that_is_too_deep_is_refused():
    with pytest.raises(ValueError, match="undo_depth must be at most 65535, got 65536"):
        HackMatrix(undo_depth=1 << 16)


@pytest.mark.slow
def test_a_last_step_that_enters_a_stage_shows_that_stage_and_goes_on_in_a_new_game():
    env = HackMatrix(max_steps=1)
    state = positions.load(position((0, 4), stage=3, exit=[0, 5]))
    action, key, reset_key = jnp.int32(RIGHT), jax.random.key(0), jax.random.key(1)
    entered, stepped = jax.jit(env.step)(key, state, action)
    final, following = jax.jit(env.step_and_reset)(key, reset_key, state, action)
    assert entered.game.stage == 4
    assert final.truncated
    assert final.info["stage_completed"]
    np.testing.assert_array_equal(final.observation, stepped.observation)
    start, first = jax.jit(env.reset)(reset_key)
    np.testing.assert_array_equal(following.observation, first.observation)
    assert positions.dump(following.state) == positions.dump(start)


def test_the_limit_truncates_and_does_not_terminate(limited):
    start = positions.load(position(), undo_depth=DEPTH)
    state, timestep = limited(start, *[WAIT] * (MAX_STEPS - 1))
    assert not timestep.truncated
    assert not timestep.action_mask.all()
    _, timestep = limited(state, WAIT)
    assert timestep.truncated
    assert not timestep.terminated
    assert timestep.action_mask.all()
    assert timestep.reward == pytest.approx(-0.01 - 0.05)


def test_an_end_at_the_limit_is_an_end_and_no_truncation(limited):
    start = positions.load(position(siphons=0), undo_depth=DEPTH)
    _, timestep = limited(start, *[WAIT] * (MAX_STEPS - 1), 4)
    assert timestep.terminated
    assert not timestep.truncated


@pytest.mark.slow
def test_a_deeper_history_goes_further_back(limited):
    start = positions.load(position(energy=30), undo_depth=DEPTH)
    state, _ = limited(start, *[WAIT] * 15)
    for depth in range(1, DEPTH + 1):
        state, timestep = limited(state, UNDO)
        assert not timestep.info["invalid_action"]
        assert state.game.turn == 3 + 15 - depth + 1
    assert limited(state, UNDO)[1].info["invalid_action"]


def _with_undo_block(**numbers):
    block = [2, 3, 2, 0, int(Program.UNDO), 0, 0, 0, 0, 0]
    return positions.load(position(cells=[block], owned=[int(Program.WAIT)], **numbers), DEPTH)


def test_undo_goes_back_to_before_it_was_owned(limited):
    early, _ = limited(_with_undo_block(), WAIT, WAIT)
    late, _ = limited(early, 4)
    assert positions.dump(late)["owned"] == [Program.WAIT, Program.UNDO]
    back, timestep = limited(late, UNDO, UNDO)
    assert not timestep.info["invalid_action"]
    restored = ("player", "owned", "cells", "enemies", "transmissions", "turn")
    now, then = positions.dump(back), positions.dump(early)
    assert {name: now[name] for name in restored} == {name: then[name] for name in restored}


def test_a_history_is_written_where_undo_is_owned_or_may_be_and_nowhere_else(limited):
    for start, written in (
        (positions.load(position(), DEPTH), True),
        (_with_undo_block(), True),
        (positions.load(position(owned=[int(Program.WAIT)]), DEPTH), False),
    ):
        state, _ = limited(start, WAIT)
        assert any(x.any() for x in jax.tree.leaves(state.history)) == written
        assert state.game.undo_length == 1


def test_one_key_one_game_and_another_key_another_game():
    env = HackMatrix()
    reset = jax.jit(jax.vmap(env.reset))
    keys = jax.random.split(jax.random.key(0), 64)
    (first, seen), (again, _) = reset(keys), reset(keys)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool((a == b).all()), first, again))
    assert len(np.unique(np.asarray(seen.observation), axis=0)) == 64


def test_a_new_game_begins_with_one_of_three_bonuses_and_nothing_else():
    env = HackMatrix()
    states, timestep = jax.jit(jax.vmap(env.reset))(jax.random.split(jax.random.key(1), 64))
    games = jax.device_get(states.game)
    player = games.player
    columns = (player.credits, player.energy, player.data_siphons)
    goods = {tuple(row) for row in np.stack(columns, axis=1).tolist()}
    assert goods == {(10, 0, 0), (0, 11, 0), (0, 0, 1)}
    assert (player.hp == 3).all()
    assert (player.attack == 1).all()
    assert not player.score.any()
    assert not games.owned.any()
    assert (games.interval == 12).all()
    assert (games.next_task == 12).all()
    assert not timestep.terminated.any()
    assert all(not value.any() for name, value in timestep.info.items() if name != "stage")
