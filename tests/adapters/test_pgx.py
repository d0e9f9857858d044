"""Games of pgx as ours: equal to its own steps, alone and against an opponent, and learned on."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from playing import assert_equal, keys_of, learned, played, replayed
from ppo_mask.adapters.pgx import PgxEnv, random_opponent
from ppo_mask.envs import FlatObservation, TimeLimit, VectorEnv, check_env, flatten
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic

pgx = pytest.importorskip("pgx", reason="pip install 'ppo-mask[pgx]'")


def first_allowed(observation, mask, key):
    del observation, key
    return jnp.argmax(mask)


@pytest.mark.parametrize(
    "name", ["2048", pytest.param("minatar-breakout", marks=pytest.mark.optimized)]
)
def test_single_player_step_equals_pgx(name):
    game = pgx.make(name)
    resets, keys, actions, (first, steps, following) = played(PgxEnv(name), num_steps=200)

    def reset(key):
        # The key that the game is dealt with, of those for it, for the seat and for the others.
        state = game.init(jax.random.split(key, 3)[0])
        return state, state

    def step(key, state, action):
        step_key, reset_key = keys_of(key)
        after = game.step(state, action, jax.random.split(step_key)[0])
        following = jax.tree.map(
            lambda new, old: jnp.where(after.terminated, new, old), reset(reset_key)[0], after
        )
        return following, (after, following)

    begun, (raw, begun_again) = replayed(reset, step, resets, keys, actions)
    assert_equal(first.observation, begun.observation)
    assert_equal(steps.observation, raw.observation)
    assert_equal(following.observation, begun_again.observation)
    assert_equal(steps.reward, raw.rewards[..., 0])
    assert_equal(steps.terminated, raw.terminated)
    assert_equal(steps.action_mask, raw.legal_action_mask)
    assert_equal(following.action_mask, begun_again.legal_action_mask)
    assert raw.terminated.any()
    assert not steps.truncated.any()


@pytest.mark.filterwarnings("ignore:.*player_id:DeprecationWarning")
@pytest.mark.parametrize("name", ["tic_tac_toe", "connect_four"])
def test_two_player_game_equals_pgx(name):
    # Whole games by hand, move by move: the agent's random ones, the opponent's first allowed.
    game, env, random = pgx.make(name), PgxEnv(name, first_allowed), np.random.default_rng(0)
    move = jax.jit(game.step)
    step, reset = jax.jit(lambda *args: env.step(*args)), jax.jit(lambda key: env.reset(key))
    begun, results = set[bool](), set[float]()
    for number in range(12):
        key = jax.random.key(number)
        match, timestep = reset(key)
        state, agent = match.game, int(match.agent)
        begun.add(bool(match.begins))
        assert match.begins == timestep.info["begins"] == (state._step_count == 0)
        while not timestep.terminated:
            assert state.current_player == agent
            assert_equal(timestep.observation, state.observation)
            assert_equal(timestep.action_mask, state.legal_action_mask)
            action = jnp.int32(random.choice(np.flatnonzero(timestep.action_mask)))
            match, timestep = step(key, match, action)
            state = move(state, action)
            reward = state.rewards[agent]
            if not state.terminated:
                state = move(state, jnp.argmax(state.legal_action_mask))
                reward += state.rewards[agent]
            assert timestep.reward == reward
            assert timestep.terminated == state.terminated
        assert timestep.action_mask.all()
        assert_equal(timestep.observation, game.observe(state, jnp.int32(agent)))
        results.add(float(timestep.reward))
    assert begun == {True, False}
    assert {1.0, -1.0} <= results


@pytest.mark.parametrize("begins", [True, False])
def test_first_player_can_be_fixed(begins):
    env = PgxEnv("tic_tac_toe", random_opponent, begins)
    match, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 64))
    assert (match.begins == begins).all()
    taken = timestep.observation.sum(axis=(1, 2, 3))
    assert (taken == (0 if begins else 1)).all()
    # Both of pgx's players are the agent at times: it numbers them by chance.
    assert set(np.asarray(match.agent)) == {0, 1}


@pytest.mark.optimized
def test_random_opponent_makes_every_allowed_move():
    env = PgxEnv("tic_tac_toe", random_opponent, begins=True)

    def reply(key):
        state, _ = env.reset(key)
        return env.step(key, state, jnp.int32(4))[1].observation[..., 1].reshape(9)

    replies = jax.vmap(reply)(jax.random.split(jax.random.key(0), 800)).sum(axis=0)
    assert replies[4] == 0
    assert (replies[jnp.array([0, 1, 2, 3, 5, 6, 7, 8])] > 60).all()


def test_opponent_plays_only_allowed_moves():
    env = PgxEnv("tic_tac_toe", lambda observation, mask, key: jnp.int32(4), begins=True)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    _, timestep = env.step(key, state, jnp.int32(4))
    assert not timestep.terminated
    assert list(np.flatnonzero(~timestep.action_mask)) == [0, 4]


def test_forbidden_action_loses():
    env = PgxEnv("tic_tac_toe", first_allowed, begins=False)
    key = jax.random.key(0)
    state, timestep = env.reset(key)
    assert not timestep.action_mask[0]
    _, timestep = env.step(key, state, jnp.int32(0))
    assert timestep.terminated
    assert timestep.reward == -1


class FlatMLP(AbstractActorCritic):
    """An MLP on a whole observation."""

    network: MLPActorCritic

    @property
    def hyperparameters(self):
        return {"network": self.network}

    def __call__(self, observation, action_mask):
        return self.network(flatten(observation), action_mask)


def test_network_may_be_the_opponent():
    network = FlatMLP(MLPActorCritic(18, 9, 8, 1, key=jax.random.key(0)))
    # Its parameters are arrays of the environment, not constants of a program.
    env = VectorEnv(PgxEnv("tic_tac_toe", network), 4)
    assert len(jax.tree.leaves(eqx.filter(env, eqx.is_array))) == 8

    # Certain of its move: it takes the last square that is free.
    def certain(linear):
        return eqx.tree_at(lambda x: x.bias, linear, 1e4 * jnp.arange(9.0))

    network = eqx.tree_at(lambda x: x.network.actor[-1], network, replace_fn=certain)
    env = PgxEnv("tic_tac_toe", network, begins=True)
    key = jax.random.key(0)
    state, _ = env.reset(key)
    state, timestep = env.step(key, state, jnp.int32(8))
    assert list(np.flatnonzero(~timestep.action_mask)) == [7, 8]
    _, timestep = env.step(key, state, jnp.int32(0))
    assert list(np.flatnonzero(~timestep.action_mask)) == [0, 6, 7, 8]


@pytest.mark.nightly
@pytest.mark.optimized
def test_three_players_take_turns():
    env = PgxEnv("sparrow_mahjong", random_opponent)
    _, _, _, (first, steps, following) = played(env, num_envs=32, num_steps=12)
    # Some games are over before the agent moves; another is dealt then.
    assert not first.terminated.any()
    assert not following.terminated[~steps.terminated].any()
    assert steps.terminated.any()
    assert (steps.reward[~steps.terminated] == 0).all()


@pytest.mark.optimized
@pytest.mark.parametrize("game", ["tic_tac_toe", "2048"])
def test_protocol_is_kept(game):
    env = PgxEnv(game, random_opponent) if game == "tic_tac_toe" else PgxEnv(game)
    check_env(TimeLimit(env, 50), num_steps=60)


def test_missing_and_needless_opponents_are_refused():
    with pytest.raises(ValueError, match=r"tic_tac_toe of pgx has 2 players: it needs an opponent"):
        PgxEnv("tic_tac_toe")
    with pytest.raises(ValueError, match=r"2048 of pgx is played alone"):
        PgxEnv("2048", random_opponent)
    with pytest.raises(ValueError, match="go_7x7"):
        PgxEnv("go_7x7")


@pytest.mark.optimized
def test_tic_tac_toe_is_learned():
    # A random player against another: 0.
    env = FlatObservation(PgxEnv("tic_tac_toe", random_opponent))
    result = learned(env, 80, learning_rate=3e-3, ent_coef=0.01)
    assert result.mean_return > 0.6
