"""Games of pgx as ours: equal to its own steps, alone and against an opponent."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from playing import assert_equal, played
from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.envs import TimeLimit, VectorEnv, check_env
from ppo_mask.games import Seat, random_opponent
from ppo_mask.networks import MLPActorCritic
from ppo_mask.ppo import PPO
from ppo_mask.training import SelfPlay, Trainer, evaluate

pgx = pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")


def first_allowed(observation, mask, key):
    del observation, key
    return jnp.argmax(mask)


@pytest.mark.filterwarnings("ignore:.*player_id:DeprecationWarning")
@pytest.mark.parametrize(("name", "games"), [("2048", 1), ("tic_tac_toe", 12)])
def test_games_equal_pgx(name, games):
    # Whole games by hand, move by move: the agent's random ones, the opponent's first allowed.
    game, random = pgx.make(name), np.random.default_rng(0)
    is_alone = game.num_players == 1
    env = Seat(PgxGame(game), None if is_alone else first_allowed)
    step, reset = jax.jit(env.step), jax.jit(env.reset)
    move, deal = jax.jit(game.step), jax.jit(game.init)
    begun, results, turns = set[bool](), set[float](), 0
    for number in range(games):
        key = jax.random.key(number)
        match, timestep = reset(key)
        state, agent = match.game, int(match.agent)
        if is_alone:
            # The key that the game is dealt with, of those for it, for the seat and for the others.
            assert_equal(state, deal(jax.random.split(key, 3)[0]))
        else:
            begun.add(bool(match.begins))
            assert match.begins == timestep.info["begins"] == (state._step_count == 0)
        while not timestep.terminated:
            assert state.current_player == agent
            assert_equal(timestep.observation, state.observation)
            assert_equal(timestep.action_mask, state.legal_action_mask)
            action = jnp.int32(random.choice(np.flatnonzero(timestep.action_mask)))
            key, turns = jax.random.key(turns), turns + 1
            match, timestep = step(key, match, action)
            state = move(state, action, jax.random.split(key)[0])
            reward = state.rewards[agent]
            if not is_alone and not state.terminated:
                state = move(state, jnp.argmax(state.legal_action_mask), key)
                reward += state.rewards[agent]
            assert timestep.reward == reward
            assert timestep.terminated == state.terminated
            assert not timestep.truncated
        assert timestep.action_mask.all()
        assert_equal(timestep.observation, game.observe(state, jnp.int32(agent)))
        results.add(float(timestep.reward))
    if not is_alone:
        assert begun == {True, False}
        assert {1.0, -1.0} <= results


def begun(opponent, begins):
    """Many games at once in which it is the agent's turn, and a function that moves in them."""
    env = Seat(PgxGame("tic_tac_toe"), opponent, begins)
    keys = jax.random.split(jax.random.key(0), 128)
    match, timestep = jax.jit(jax.vmap(env.reset))(keys)
    assert (match.begins == begins).all()
    # Both of pgx's players are the agent at times: it numbers them by chance.
    assert set(np.asarray(match.agent)) == {0, 1}
    move = jax.jit(jax.vmap(env.step, (0, 0, None)))
    return timestep, lambda action: move(keys, match, jnp.int32(action))[1]


def test_opponent_plays_only_allowed_moves():
    timestep, move = begun(lambda observation, mask, key: jnp.int32(4), begins=True)
    assert not timestep.observation.any()
    timestep = move(4)
    assert not timestep.terminated.any()
    # Its own move is taken: it makes the first that is allowed.
    assert (~timestep.action_mask == np.isin(np.arange(9), [0, 4])).all()


def test_opponent_begins_and_a_forbidden_action_loses():
    timestep, move = begun(first_allowed, begins=False)
    assert (timestep.observation.sum(axis=(1, 2, 3)) == 1).all()
    assert not timestep.action_mask[:, 0].any()
    timestep = move(0)
    assert timestep.terminated.all()
    assert (timestep.reward == -1).all()


@pytest.mark.slow
def test_random_opponent_makes_every_allowed_move():
    _, move = begun(random_opponent, begins=True)
    replies = move(4).observation[..., 1].reshape(-1, 9).sum(axis=0)
    assert replies[4] == 0
    assert (np.delete(replies, 4) > 5).all()  # Of 16.


def test_network_may_be_the_opponent():
    network = MLPActorCritic(18, 9, 8, 1, key=jax.random.key(0))
    # Its parameters are arrays of the environment, not constants of a program.
    env = VectorEnv(Seat(PgxGame("tic_tac_toe"), network), 4)
    assert len(jax.tree.leaves(eqx.filter(env, eqx.is_array))) == 8

    # Certain of its move: it takes the last square that is free.
    def certain(linear):
        return eqx.tree_at(lambda x: x.bias, linear, 1e4 * jnp.arange(9.0))

    network = eqx.tree_at(lambda x: x.actor[-1], network, replace_fn=certain)
    env = Seat(PgxGame("tic_tac_toe"), network, begins=True)
    key = jax.random.key(0)
    step = eqx.filter_jit(env.step)
    state, _ = eqx.filter_jit(env.reset)(key)
    state, timestep = step(key, state, jnp.int32(8))
    assert list(np.flatnonzero(~timestep.action_mask)) == [7, 8]
    _, timestep = step(key, state, jnp.int32(0))
    assert list(np.flatnonzero(~timestep.action_mask)) == [0, 6, 7, 8]


@pytest.mark.nightly
@pytest.mark.optimized
def test_three_players_take_turns():
    env = Seat(PgxGame("sparrow_mahjong"), random_opponent)
    _, _, _, (first, steps, following) = played(env, num_envs=32, num_steps=12)
    # Some games are over before the agent moves; another is dealt then.
    assert not first.terminated.any()
    assert not following.terminated[~steps.terminated].any()
    assert steps.terminated.any()
    assert (steps.reward[~steps.terminated] == 0).all()


@pytest.mark.slow
def test_protocol_is_kept():
    check_env(TimeLimit(Seat(PgxGame("tic_tac_toe"), random_opponent), 50), num_steps=60)


def test_missing_and_needless_opponents_are_refused():
    with pytest.raises(ValueError, match=r"tic_tac_toe of pgx has 2 players: it needs an opponent"):
        Seat(PgxGame("tic_tac_toe"))
    with pytest.raises(ValueError, match=r"2048 of pgx is played alone"):
        Seat(PgxGame("2048"), random_opponent)
    with pytest.raises(ValueError, match="go_7x7"):
        Seat(PgxGame("go_7x7"))


@pytest.mark.parametrize("sizes", [(18, 7), (42, 9)])
def test_a_network_for_another_game_is_refused(sizes):
    network = MLPActorCritic(*sizes, 8, 1, key=jax.random.key(0))
    shape = r"observations of shape \(3, 3, 2\) and 9 actions"
    with pytest.raises(ValueError, match=f"MLPActorCritic is for another game: tic_tac.*{shape}"):
        Seat(PgxGame("tic_tac_toe"), network)


@pytest.mark.nightly
@pytest.mark.optimized
def test_a_player_that_has_only_met_itself_beats_a_random_one():
    # A random player against another: 0, and it loses more than two games of five.
    env = Seat(PgxGame("tic_tac_toe"), random_opponent)
    numbers = {"learning_rate": 3e-3, "anneal_lr": True, "ent_coef": 0.1, "gamma": 1.0}
    config = PPO(num_envs=32, num_steps=64, **numbers)
    model_key, key, evaluation_key = jax.random.split(jax.random.key(0), 3)
    model = MLPActorCritic(18, 9, 64, 2, layer_norm=True, key=model_key)
    trainer = Trainer(env, config, curriculum=SelfPlay(lambda env: env.opponent, every=5))
    state = trainer.train(trainer.init(model, key), 300 * config.batch_size)
    result = evaluate(state.model, env, evaluation_key, 1000, greedy=False)
    assert result.mean_return > 0.7
    assert jnp.mean(result.episode_return < 0) < 0.05


def test_a_game_is_drawn():
    env = Seat(PgxGame("tic_tac_toe"), random_opponent)
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    assert env.draw(state, timestep).source.startswith("<svg ")


def test_a_state_that_begins_with_python_numbers_has_arrays() -> None:
    state, _ = eqx.filter_eval_shape(PgxGame("othello").deal, jax.random.key(0))
    assert all(isinstance(x, jax.ShapeDtypeStruct) for x in jax.tree.leaves(state))
