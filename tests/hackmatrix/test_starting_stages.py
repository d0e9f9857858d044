"""Games that begin in a later stage, and the curriculum that makes them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from hackmatrix.curriculum import STAGES, TrainingGames
from hackmatrix.metrics import METRICS
from hackmatrix.rules.draws import Draws
from hackmatrix.rules.starts import _draw_stage
from hackmatrix.task import GameSettings
from ppo_mask.envs import check_env
from ppo_mask.errors import RunError
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.runner import Phases
from ppo_mask.training import Trainer

WEIGHTS = jnp.array([2.0, 0, 0, 1, 0, 0, 0, 1])


@pytest.mark.parametrize(
    "weights",
    [
        [2, 0, 0, 1, 0, 0, 0, 1],
        [1, 1, 1, 1, 1, 1, 1, 1],
        [0, 0, 0, 0, 0, 0, 0, 1e-20],
        [1e-3, 0, 3e-3, 0, 0, 0, 0, 0],
        [0.1, 0.7, 0, 0.1, 0.1, 0, 0, 0],
    ],
)
def test_stages_are_drawn_in_proportion_to_their_weights(weights):
    count = 1 << 17
    keys = jax.random.split(jax.random.key(0), count)
    stages = jax.vmap(lambda key: _draw_stage(Draws(key), jnp.float32(weights)))(keys)
    found = np.bincount(stages, minlength=9)[1:] / count
    wanted = np.array(weights) / sum(weights)
    assert not found[wanted == 0].any()
    np.testing.assert_allclose(found, wanted, atol=4 * 0.5 / count**0.5)


def test_a_stage_of_little_weight_still_comes():
    draws = jax.vmap(Draws)(jax.random.split(jax.random.key(0), 1 << 18))
    weights = jnp.array([1.0, 1e-7, 0, 0, 0, 0, 0, 0])
    stages = jax.vmap(lambda draws: _draw_stage(draws, weights))(draws)
    assert 0 < np.sum(np.asarray(stages) == 2) < 20


@pytest.mark.slow
def test_a_game_begins_as_if_the_stage_had_been_entered_with_a_new_player():
    reset = jax.jit(jax.vmap(lambda key, weights: HackMatrix(starting_weights=weights).reset(key)))
    keys = jax.random.split(jax.random.key(1), 64)
    states, timestep = reset(keys, jnp.broadcast_to(WEIGHTS, (64, 8)))
    games = jax.device_get(states.game)
    assert set(games.stage) == {1, 4, 8}
    np.testing.assert_array_equal(timestep.info["stage"], games.stage)
    np.testing.assert_array_equal(games.interval, 13 - games.stage)
    np.testing.assert_array_equal(games.next_task, 13 - games.stage)
    entities = states.game.entities
    incoming = jax.vmap(lambda table: table.is_transmission.sum())(entities)
    np.testing.assert_array_equal(incoming, games.stage)
    assert not jax.vmap(lambda table: table.is_enemy.any())(entities).any()
    assert not games.turn.any()
    assert not games.steps.any()
    assert (games.player.hp == 3).all()
    assert not games.player.score.any()
    assert not games.owned.any()

    # In stage 1 they are the games that there are without weights; so all else is drawn as ever.
    plain, seen = jax.jit(jax.vmap(HackMatrix().reset))(keys)
    first = games.stage == 1
    np.testing.assert_array_equal(timestep.observation[first], seen.observation[first])
    np.testing.assert_array_equal(games.player.cell, plain.game.player.cell)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_laws_of_the_protocol_hold_for_weights():
    check_env(HackMatrix(starting_weights=WEIGHTS))


def test_weights_are_one_for_each_stage():
    with pytest.raises(ValueError, match=r"must be 8 numbers, one for each stage, .* \(3,\)"):
        HackMatrix(starting_weights=jnp.ones(3))


def test_a_files_phases_become_weights():
    assert GameSettings().training_games() is None
    plain = [{"until": 0.25, "weights": {4: 1, 8: 0.5}}, {"weights": {1: 1}}]
    phases = Phases.from_plain(plain, "--curriculum")
    curriculum: Any = GameSettings(curriculum=phases).training_games()
    for progress, weights in [(0, [0, 0, 0, 1, 0, 0, 0, 0.5]), (0.25, [1, 0, 0, 0, 0, 0, 0, 0])]:
        env = curriculum(HackMatrix(max_steps=9), jnp.float32(progress))
        assert isinstance(env, HackMatrix)
        assert env.max_steps == 9
        np.testing.assert_array_equal(env.starting_weights, weights)
    assert tuple("12345678") == STAGES
    with pytest.raises(RunError, match="phase 1: there is no starting point 9; there are 1, 2"):
        Phases.from_plain([{"weights": {9: 1}}], "--curriculum").schedule(STAGES)


@pytest.mark.slow
def test_games_that_end_while_training_begin_anew_where_the_phase_says():
    phases = Phases.from_plain([{"until": 0.5, "weights": {7: 1}}, {"weights": {2: 1}}], "x")
    curriculum = TrainingGames(phases.schedule(STAGES))
    env, config = HackMatrix(max_steps=4), PPOConfig(num_envs=16, num_steps=8)
    model = MLPActorCritic(1545, env.num_actions, 8, 1, key=jax.random.key(0))
    state = Trainer(env, config, metrics=METRICS, curriculum=curriculum).init(
        model, jax.random.key(1)
    )
    assert set(np.asarray(state.learner.rollout.vector_state.env_state.game.stage)) == {7}
    state = Trainer(env, config, metrics=METRICS, curriculum=curriculum).train(
        state, 4 * config.batch_size
    )
    # A game has four steps at most, in which two stages may be entered.
    stages = set(np.asarray(state.learner.rollout.vector_state.env_state.game.stage))
    assert 2 in stages
    assert stages <= {2, 3, 4}
