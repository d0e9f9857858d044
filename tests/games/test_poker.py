"""Poker by its rules; benchmarks/exploitability.py compares whole trees with OpenSpiel."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from poker import Kuhn, Leduc
from ppo_mask.games import check_game

KEY = jax.random.key(0)


def play(game, cards, actions):
    """The turns of a game with these cards, the last of which is its end."""
    state, turn = game.deal_cards(jnp.array(cards))
    turns = [turn]
    for action in actions:
        assert turn.action_mask[action]
        assert not turn.terminated
        state, turn = game.move(KEY, state, jnp.int32(action))
        turns.append(turn)
    return state, turns


# The first player has the king (2), the second the queen (1).
KUHN = {"pp": 1, "bp": 1, "bb": 2, "pbp": -1, "pbb": 2}


@pytest.mark.parametrize("bets", KUHN)
def test_kuhn_pays_as_by_its_rules(bets):
    actions = ["pb".index(bet) for bet in bets]
    state, turns = play(Kuhn(), [2, 1], actions)
    assert [int(turn.player) for turn in turns[:-1]] == [n % 2 for n in range(len(bets))]
    assert turns[-1].terminated
    assert turns[-1].rewards.tolist() == [KUHN[bets], -KUHN[bets]]
    assert f"cards K Q   bets {bets}" == Kuhn().draw(state)
    seen = Kuhn().observe(state, jnp.int32(1))
    assert seen[:5].tolist() == [0, 1, 0, 1, 0]
    made = [x for bet in bets for x in (bet == "p", bet == "b")]
    assert seen[5:].tolist() == made + [0] * (6 - len(made))


# Cards are a jack, a queen and a public jack; fold, call and raise.
LEDUC = {
    "rf": [1, -1],
    "ccrf": [1, -1],
    "cccc": [1, -1],  # The first has a pair.
    "crrcrrc": [13, -13],
    "rrf": [-3, 3],
    "crcrf": [3, -3],
}


@pytest.mark.parametrize("bets", LEDUC)
def test_leduc_pays_as_by_its_rules(bets):
    _, turns = play(Leduc(), [0, 2, 1], ["fcr".index(bet) for bet in bets])
    assert turns[-1].terminated
    assert turns[-1].rewards.tolist() == LEDUC[bets]
    assert not any(turn.terminated for turn in turns[:-1])


def test_leduc_shows_the_public_card_in_the_second_round_and_limits_raises():
    game = Leduc()
    state, turns = play(game, [0, 2, 4], [1, 2, 2])
    assert [turn.action_mask.tolist() for turn in turns] == [
        [False, True, True],
        [False, True, True],
        [True, True, True],
        [True, True, False],
    ]
    assert state.paid.tolist() == [5, 3]
    assert game.observe(state, jnp.int32(0))[5:8].tolist() == [0, 0, 0]
    state, turn = game.move(KEY, state, jnp.int32(1))
    seen = game.observe(state, jnp.int32(0))
    assert seen[:8].tolist() == [1, 0, 1, 0, 0, 0, 0, 1]
    assert int(turn.player) == 0
    bets = seen[8:].reshape(2, 4, 3)
    assert np.argmax(bets[0], axis=1).tolist() == [1, 2, 2, 1]
    assert not bets[1].any()
    assert game.draw(state) == "cards J Q   public K   bets crrc / -   paid [5 5]"


@pytest.mark.slow
@pytest.mark.parametrize("game", [Kuhn(), Leduc()])
def test_the_protocol_is_kept(game):
    check_game(game, num_steps=40)
