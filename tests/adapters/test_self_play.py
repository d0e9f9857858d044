"""Self-play in a game of pgx: what is learned by it, and what cannot play."""

import jax
import jax.numpy as jnp
import pytest

from playing import learned
from ppo_mask.adapters.pgx import PgxEnv, random_opponent
from ppo_mask.networks import GRUActorCritic, MLPActorCritic
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import SelfPlay, Trainer

pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")


@pytest.fixture(scope="module")
def env():
    return PgxEnv("tic_tac_toe", random_opponent)


def test_a_recurrent_learner_cannot_play_against_itself(env):
    curriculum = SelfPlay(lambda env: env.opponent)
    trainer = Trainer(env, PPOConfig(num_envs=4, num_steps=8), curriculum=curriculum)
    model = GRUActorCritic(18, 9, 8, key=jax.random.key(0))
    with pytest.raises(ValueError, match="a recurrent network cannot be the opponent"):
        trainer.init(model, jax.random.key(1))


@pytest.mark.parametrize("sizes", [(18, 7), (42, 9)])
def test_a_network_for_another_game_is_refused(sizes):
    network = MLPActorCritic(*sizes, 8, 1, key=jax.random.key(0))
    shape = r"observations of shape \(3, 3, 2\) and 9 actions"
    with pytest.raises(ValueError, match=f"MLPActorCritic is for another game: tic_tac.*{shape}"):
        PgxEnv("tic_tac_toe", network)


@pytest.mark.nightly
@pytest.mark.optimized
def test_a_player_that_has_only_met_itself_beats_a_random_one(env):
    # A random player against another: 0, and it loses more than two games of five.
    curriculum = SelfPlay(lambda env: env.opponent, every=5)
    result = learned(
        env,
        300,
        evaluations=1000,
        curriculum=curriculum,
        num_steps=64,
        learning_rate=3e-3,
        anneal_lr=True,
        ent_coef=0.1,
        gamma=1.0,
    )
    assert result.mean_return > 0.7
    assert jnp.mean(result.episode_return < 0) < 0.05
