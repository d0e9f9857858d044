"""A game of PettingZoo for one player equals the game by hand, whoever moves in between."""

from functools import partial

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium.utils import seeding

import ppo_mask as pm
from playing import draw_allowed
from ppo_mask.adapters._on_host._moves import Moves
from ppo_mask.adapters.pettingzoo import PettingZooEnv
from ppo_mask.errors import RunError

pettingzoo = pytest.importorskip("pettingzoo", reason="pip install 'ppo-mask[pettingzoo]'")
from pettingzoo.classic import tictactoe_v3  # noqa: E402

from zoo_games import Dice  # noqa: E402

KEY = jax.random.key(0)


class ByHand:
    """The same as PettingZoo's documentation plays it; the others take what is allowed first."""

    def __init__(self, seed):
        self.random, _ = seeding.np_random(seed)
        self.game, self.began_again = Dice(), 0
        self.begin()

    def begin(self):
        is_over = True
        while is_over:
            self.game.reset(seed=int(self.random.integers(2**31)))
            self.agent = self.game.possible_agents[self.random.integers(3)]
            _, *ends = self.to_turn()
            is_over = any(ends)
            self.began_again += is_over

    def to_turn(self):
        for player in self.game.agent_iter():
            self.seen, reward, *ends, _ = self.game.last()
            if player == self.agent:
                break
            self.game.step(None if any(ends) else int(self.seen["action_mask"].argmax()))
        return reward, *ends

    def step(self, action):
        self.game.step(action)
        return self.to_turn()


def first_allowed(observation, mask, key):
    return jnp.argmax(mask)


@pytest.mark.parametrize(("limit", "num_workers"), [(100, 0), (100, 2), (3, 0)])
def test_games_equal_the_game_by_hand(limit, num_workers):
    games = PettingZooEnv(Dice, first_allowed, num_workers=num_workers)
    vector = pm.VectorEnv(pm.TimeLimit(games, limit), 4)
    reset_keys = [jax.random.split(key)[0] for key in jax.random.split(KEY, 4)]
    by_hand = [ByHand(int(jax.random.key_data(key)[-1] & 0x7FFFFFFF)) for key in reset_keys]
    random, step, ends, steps = np.random.default_rng(0), jax.jit(vector.step), [], np.zeros(4, int)
    state, timestep = jax.jit(vector.reset)(KEY)
    for _ in range(150):
        for row, hand in enumerate(by_hand):
            np.testing.assert_array_equal(timestep.observation[row], hand.seen["observation"])
            np.testing.assert_array_equal(timestep.action_mask[row], hand.seen["action_mask"])
        actions = draw_allowed(random, timestep.action_mask, 4)
        state, timestep = step(KEY, state, actions)
        timestep = jax.device_get(timestep)
        steps += 1
        for row, hand in enumerate(by_hand):
            reward, terminated, truncated = hand.step(int(actions[row]))
            truncated = (truncated or steps[row] == limit) and not terminated
            assert timestep.reward[row] == np.float32(reward)
            assert (timestep.terminated[row], timestep.truncated[row]) == (terminated, truncated)
            final = timestep.final_observation[row]
            np.testing.assert_array_equal(final, hand.seen["observation"])
            if terminated or truncated:
                ends.append((terminated, hand.agent))
                hand.begin()
                steps[row] = 0
    games.close()
    assert {*ends} == {(terminated, agent) for terminated in (True, False) for agent in "abc"}
    assert sum(hand.began_again for hand in by_hand) > 0


class SomePlay(Dice):
    """A game for two of the three."""

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.agents.remove("bc"[(seed or 0) % 2])


def test_who_does_not_take_part_has_no_seat():
    moves = Moves(SomePlay)
    seats = set()
    for seed in range(20):
        moves.reset(seed=seed)
        assert moves._agent in moves.game.agents
        seats.add(moves._agent)
    assert seats == {"a", "b", "c"}


def test_an_error_while_others_move_is_one_line():
    env = PettingZooEnv(partial(Dice, crash_at=2), first_allowed)
    line = r"^dice_v0 raised RuntimeError: the dice are gone at .*zoo_games.py:\d+ \(step\)$"
    with pytest.raises(RunError, match=line):
        # In one, two others begin; the next call raises what happened.
        [env.reset(jax.random.key(number)) for number in range(9)]


def test_a_program_can_encode_what_a_player_sees():
    env, game = PettingZooEnv(Dice, mask=lambda game: game.mask), Dice()
    game.reset(seed=0)
    np.testing.assert_array_equal(env.encode(game.observe("b")), [1, 0, 0, 0])
    _, timestep = env.reset(KEY)
    assert timestep.action_mask.sum() == 2


def test_the_observation_does_not_contain_the_mask():
    class Renamed(Dice):
        def observation_space(self, agent):
            parts = {**super().observation_space(agent)}
            return gymnasium.spaces.Dict(valid_actions=parts.pop("action_mask"), **parts)

        def observe(self, agent):
            parts = super().observe(agent)
            return {"valid_actions": parts.pop("action_mask"), **parts}

    _, timestep = PettingZooEnv(Renamed).reset(KEY)
    assert timestep.observation.shape == (4,)
    assert timestep.action_mask.sum() == 2


class TwoNumbers(Dice):
    def action_space(self, agent):
        return gymnasium.spaces.MultiDiscrete([2, 2])


class Nameless(Dice):
    def __init__(self):
        super().__init__()
        del self.possible_agents


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (partial(gymnasium.make, "CartPole-v1"), ": TimeLimit is no AEC game; .* parallel_to_aec"),
        (pettingzoo.ParallelEnv, ": ParallelEnv is no AEC game; .* parallel_to_aec"),
        (Nameless, " raised AttributeError: .* 'possible_agents'"),
        (partial(Dice, sizes=(4, 4, 3)), ": the players of dice_v0 must have equal spaces"),
        (TwoNumbers, ": dice_v0 has actions of MultiDiscrete.*; they must be Discrete"),
    ],
)
def test_what_cannot_be_played_is_one_line(make, line):
    with pytest.raises(RunError, match=f"^the environment{line}"):
        PettingZooEnv(make)


def test_a_network_for_another_game_is_refused():
    network = pm.MLPActorCritic(5, 4, 8, 1, key=KEY)
    with pytest.raises(ValueError, match=r"MLPActorCritic is for another game: dice_v0 has obs.*4"):
        PettingZooEnv(Dice, network)


class Counts(pm.networks.AbstractRecurrentActorCritic):
    """Plays at random, and counts its own moves."""

    def initial_hidden(self):
        return jnp.zeros(())

    def advance(self, observation, action_mask, hidden):
        return pm.MaskedCategorical(jnp.zeros(9), action_mask), hidden, hidden + 1


def test_a_recurrent_opponent_remembers_its_own_game_and_the_outcome_is_said():
    games = PettingZooEnv(tictactoe_v3.env, Counts())
    vector = pm.VectorEnv(games, 4)
    state, timestep = jax.jit(vector.reset)(KEY)
    random, step, outcomes = np.random.default_rng(0), jax.jit(vector.step), []
    for _ in range(40):
        theirs = timestep.observation[..., 1].sum((1, 2))
        np.testing.assert_array_equal(state.env_state.hidden.sum(1), theirs)
        state, timestep = step(KEY, state, draw_allowed(random, timestep.action_mask, 4))
        assert (timestep.info["outcome"] == (1 + jnp.sign(timestep.episode_return)) / 2).all()
        outcomes += timestep.info["outcome"][timestep.terminated].tolist()
    assert {*outcomes} >= {0, 1}
