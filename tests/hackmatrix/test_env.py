"""The game as an environment: the protocol's laws, its parameters, truncation and UNDO's depth."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from games import RIGHT, SIPHON, position, run
from hackmatrix import HackMatrix, HeadStart, Shaping, positions
from hackmatrix.rules.programs import Program
from ppo_mask.envs import check_env
from recorded import new_games

WAIT, UNDO = run(Program.WAIT), run(Program.UNDO)
MAX_STEPS, DEPTH = 16, 12
LIMITED = HackMatrix(undo_depth=DEPTH, max_steps=MAX_STEPS)
"""An environment with other parameters than other tests have."""


def load(start):
    return positions.load(start, undo_depth=DEPTH)


def play(state, *actions):
    for number, action in enumerate(actions):
        state, timestep = LIMITED.step(jax.random.key(number), state, jnp.int32(action))
    return state, timestep


@pytest.mark.slow
def test_the_laws_of_the_protocol_hold_with_everything_that_can_be_set():
    check_env(
        HackMatrix(
            undo_depth=9,
            starting_weights=jnp.array([2.0, 0, 0, 1, 0, 0, 0, 1]),
            head_start=HeadStart(share=0.5, programs=0.4, credits=7, score=2),
            shaping=Shaping(jnp.ones(15), 1.0, True),
        )
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"undo_depth": 7}, "undo_depth must be at least 8, got 7"),
        ({"undo_depth": -1}, "undo_depth must be at least 8, got -1"),
        ({"undo_depth": 1 << 16}, "undo_depth must be at most 65535, got 65536"),
        ({"max_steps": 0}, "max_steps must be at least 1 or None, got 0"),
        ({"max_steps": 1 << 31}, "max_steps must be at most 2147483647 or None, got 2147483648"),
        ({"starting_weights": jnp.ones(3)}, r"must be 8 numbers, one for each stage, .* \(3,\)"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        HackMatrix(**settings)
    HackMatrix(max_steps=(1 << 31) - 1)


@pytest.mark.slow
def test_a_last_step_that_enters_a_stage_shows_that_stage_and_goes_on_in_a_new_game():
    state, _ = play(load(position((0, 4), stage=3, exit=[0, 5])), *[WAIT] * (MAX_STEPS - 1))
    action, key, reset_key = jnp.int32(RIGHT), jax.random.key(0), jax.random.key(1)
    entered, stepped = LIMITED.step(key, state, action)
    final, following = jax.jit(LIMITED.step_and_reset)(key, reset_key, state, action)
    assert entered.game.stage == 4
    assert final.truncated
    assert final.info["stage_completed"]
    np.testing.assert_array_equal(final.observation, stepped.observation)
    start, first = HackMatrix().reset(reset_key)
    np.testing.assert_array_equal(following.observation, first.observation)
    assert positions.dump(following.state) == positions.dump(start)


def test_the_limit_truncates_and_an_end_at_the_limit_is_an_end():
    state, timestep = play(load(position(siphons=0)), *[WAIT] * (MAX_STEPS - 1))
    assert not timestep.truncated
    assert not timestep.action_mask.all()
    for action, truncated in ((WAIT, True), (SIPHON, False)):  # It has nothing to siphon with.
        _, timestep = play(state, action)
        assert (timestep.truncated, timestep.terminated) == (truncated, not truncated)
        assert timestep.action_mask.all() == (not truncated)
        assert timestep.reward == pytest.approx((-0.01 - 0.05) * truncated)


def test_a_deeper_history_goes_further_back():
    state, _ = play(load(position(energy=30)), *[WAIT] * 15)
    for depth in range(1, DEPTH + 1):
        state, timestep = play(state, UNDO)
        assert not timestep.info["invalid_action"]
        assert state.game.turn == 3 + 15 - depth + 1
    assert play(state, UNDO)[1].info["invalid_action"]


UNDO_BLOCK = position(
    cells=[[2, 3, 2, 0, int(Program.UNDO), 0, 0, 0, 0, 0]], owned=[int(Program.WAIT)]
)


def test_undo_goes_back_to_before_it_was_owned():
    early, _ = play(load(UNDO_BLOCK), WAIT, WAIT)
    late, _ = play(early, SIPHON)
    assert positions.dump(late)["owned"] == [Program.WAIT, Program.UNDO]
    back, timestep = play(late, UNDO, UNDO)
    assert not timestep.info["invalid_action"]
    restored = ("player", "owned", "cells", "enemies", "transmissions", "turn")
    now, then = positions.dump(back), positions.dump(early)
    assert {name: now[name] for name in restored} == {name: then[name] for name in restored}


def test_a_history_is_written_where_undo_is_owned_or_may_be_and_nowhere_else():
    for start, written in (
        (position(), True),
        (UNDO_BLOCK, True),
        (position(owned=[int(Program.WAIT)]), False),
    ):
        state, _ = play(load(start), WAIT)
        assert any(x.any() for x in jax.tree.leaves(state.history)) == written
        assert state.game.undo_length == 1


def test_one_key_one_game_and_another_key_another_game():
    (_, seen), (_, again) = new_games(), new_games()
    np.testing.assert_array_equal(seen.observation, again.observation)
    assert len(np.unique(seen.observation, axis=0)) == 64
    assert not any(value.any() for name, value in seen.info.items() if name != "stage")
