"""A game from the side of one player, against whom and whatever happens in it."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from playing import assert_equal
from ppo_mask.errors import ProtocolError
from ppo_mask.games import AbstractGame, Seat, Turn, check_game, random_opponent
from ppo_mask.training import SelfPlay


class CountUp(AbstractGame):
    """Players add 1 or 2 in turn; who reaches ``goal`` wins a point of each other player.

    Player 2 of three is ``absent`` from some games, or dies when the sum is ``deadly``.
    """

    goal: int = eqx.field(static=True, default=7)
    num_players: int = eqx.field(static=True, default=2)
    absent: bool = eqx.field(static=True, default=False)
    deadly: int = eqx.field(static=True, default=-1)
    num_actions: int = eqx.field(static=True, default=2, init=False)

    def deal(self, key):
        out = jnp.arange(self.num_players) == 2
        out &= jax.random.bernoulli(key) & self.absent
        return self._show((jnp.int32(0), jnp.int32(0), out), jnp.zeros(self.num_players))

    def move(self, key, state, action):
        total, player, out = state
        total += action + 1
        won = total >= self.goal
        mine = jnp.arange(self.num_players) == player
        rewards = jnp.where(won, jnp.where(mine, self.num_players - 1.0, -1.0), 0)
        out |= (jnp.arange(self.num_players) == 2) & (total == self.deadly)
        order = (player + 1 + jnp.arange(self.num_players)) % self.num_players
        following = order[jnp.argmax(~out[order])]
        return self._show((total, following.astype(jnp.int32), out), rewards)

    def observe(self, state, player):
        return jnp.stack([state[0], player]).astype(jnp.float32)

    def _show(self, state, rewards):
        total, player, out = state
        mask = jnp.array([True, True]) & (jnp.arange(2) < self.goal - total)
        over = total >= self.goal
        out = out if self.absent or self.deadly >= 0 else None
        return state, Turn(player, mask | over, rewards, over, info={"total": total}, out=out)


def one(observation, mask, key):
    """Always adds 1."""
    return jnp.int32(0)


def test_the_opponent_moves_until_the_agents_turn():
    env = Seat(CountUp(), one, begins=False)
    state, timestep = env.reset(jax.random.key(0))
    assert (int(state.agent), bool(timestep.info["begins"])) == (1, False)
    assert timestep.observation.tolist() == [1, 1]
    totals, rewards = [], []
    for action in (1, 1, 0):
        state, timestep = env.step(jax.random.key(1), state, action)
        totals.append(int(timestep.info["total"]))
        rewards.append(float(timestep.reward))
    assert totals == [4, 7, 8][: len(totals)] or totals[:2] == [4, 7]
    assert rewards[:2] == [0, -1]


def test_a_whole_game_is_that_of_the_rules():
    env = Seat(CountUp(), one, begins=True)
    state, timestep = env.reset(jax.random.key(0))
    # 2, then 3; 5, then 6; only 1 is allowed, and wins.
    for action, total, outcome in ((1, 3, 0.5), (1, 6, 0.5), (0, 7, 1.0)):
        assert timestep.action_mask[action]
        assert not timestep.terminated
        state, timestep = env.step(jax.random.key(1), state, action)
        assert timestep.info["total"] == total
        assert timestep.info["outcome"] == outcome
    assert timestep.action_mask.all()
    assert (bool(timestep.terminated), float(timestep.reward)) == (True, 1)


def test_who_begins_is_sampled_and_said():
    env = Seat(CountUp(num_players=3), one)
    state, timestep = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 300))
    share = np.bincount(state.agent) / 300
    np.testing.assert_allclose(share, 1 / 3, atol=0.1)
    assert_equal(timestep.info["begins"], state.agent == 0)
    # Whoever sits before the agent has added 1.
    assert_equal(timestep.observation, jnp.stack([state.agent, state.agent], 1).astype(jnp.float32))


def test_an_absent_player_is_no_agent_and_a_dead_ones_episode_ends():
    env = Seat(CountUp(num_players=3, absent=True), one, begins=False)
    state, _ = jax.vmap(env.reset)(jax.random.split(jax.random.key(0), 200))
    agent, is_absent = np.asarray(state.agent), np.asarray(state.game[2][:, 2])
    assert 0.35 < is_absent.mean() < 0.65
    assert set(agent[is_absent]) == {1}
    assert set(agent[~is_absent]) == {1, 2}

    env = Seat(CountUp(num_players=3, deadly=5), one, begins=False)
    keys = jax.random.split(jax.random.key(1), 8)
    state, _ = jax.vmap(env.reset)(keys)
    row = int(np.argmax(np.asarray(state.agent) == 2))
    state = jax.tree.map(lambda x: x[row], state)
    state, timestep = env.step(keys[0], state, 1)  # 2 + 2, and the next makes it 5.
    assert bool(timestep.terminated)
    assert int(timestep.info["total"]) == 5
    assert not timestep.truncated


class Remembers(pm.AbstractRecurrentActorCritic):
    """Adds 1 at first, then always 2."""

    def initial_hidden(self):
        return jnp.zeros(())

    def advance(self, observation, action_mask, hidden):
        logits = 1e4 * jnp.stack([1 - hidden, hidden])
        return pm.MaskedCategorical(logits, action_mask), hidden, hidden + 1


def test_a_recurrent_opponent_remembers_its_own_game():
    env = Seat(CountUp(goal=20), Remembers(), begins=True)
    for _ in range(2):  # A new game forgets.
        state, timestep = env.reset(jax.random.key(0))
        totals = []
        for _ in range(3):
            state, timestep = env.step(jax.random.key(1), state, 0)
            totals.append(int(timestep.info["total"]))
        assert totals == [2, 5, 8]
    # Of two opponents, each remembers its own moves.
    env = Seat(CountUp(goal=20, num_players=3), Remembers(), begins=True)
    state, timestep = env.reset(jax.random.key(0))
    totals = []
    for _ in range(2):
        state, timestep = env.step(jax.random.key(1), state, 0)
        totals.append(int(timestep.info["total"]))
    assert totals == [3, 8]


@pytest.mark.parametrize("kind", ["mlp", "gru"])
def test_a_learner_plays_against_its_copy(kind):
    env = Seat(CountUp(), random_opponent)
    trainer = pm.Trainer(
        env,
        pm.PPO(num_envs=4, num_steps=4, num_minibatches=2, update_epochs=1),
        curriculum=SelfPlay(lambda env: env.opponent, every=1),
    )
    model = pm.network_for(env, kind, hidden_dim=4, key=jax.random.key(0))
    state = trainer.train(trainer.init(model, jax.random.key(1)), 32)
    assert int(state.update) == 2
    before = jax.tree.leaves(eqx.filter(model, eqx.is_array))
    copy = jax.tree.leaves(eqx.filter(state.memory.copies, eqx.is_array))
    assert any((a != b[0]).any() for a, b in zip(before, copy, strict=True))


def test_a_seat_without_an_opponent_or_with_a_needless_one_is_refused():
    with pytest.raises(ValueError, match="CountUp has 2 players: it needs an opponent"):
        Seat(CountUp())
    with pytest.raises(ValueError, match="CountUp is played alone"):
        Seat(CountUp(num_players=1), one)
    network = pm.MLPActorCritic(3, 2, 4, 1, key=jax.random.key(0))
    with pytest.raises(ValueError, match=r"for another game: CountUp has observations of shape"):
        Seat(CountUp(), network)


class NoTurn(CountUp):
    """Somebody who is out has the turn."""

    def _show(self, state, rewards):
        state, turn = super()._show(state, rewards)
        return state, dataclasses.replace(turn, player=jnp.int32(2) * (state[0] > 3))


class Grows(CountUp):
    """The state changes its type."""

    def move(self, key, state, action):
        (total, *rest), turn = super().move(key, state, action)
        return (total.astype(jnp.float32), *rest), turn


class OneReward(CountUp):
    """Only one player gets a reward."""

    def _show(self, state, rewards):
        return super()._show(state, rewards[:1])


@pytest.mark.slow
def test_games_are_checked():
    check_game(CountUp(num_players=3, absent=True), num_steps=30)
    wrong = {
        "player 2 is out, and cannot have the turn": NoTurn(num_players=3, deadly=3),
        "[0] is int32[] from deal but float32[] from move": Grows(),
        "rewards must be one for each of 2 players": OneReward(),
    }
    for line, game in wrong.items():
        with pytest.raises(ProtocolError) as caught:
            check_game(game, num_steps=30)
        assert line in str(caught.value)
