"""Two small games of poker, whose exploitability can be computed; magnet.py trains on them.

Rewards are in chips, and the rules are those of OpenSpiel (Lanctot et al. 2019, arXiv:1908.09453).
Observations forget nothing: they hold a player's seat, the cards seen, and every bet in its order.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.games import AbstractGame, Turn

NOTHING = -1
"""Stands for a bet that has not been made."""


class KuhnState(eqx.Module):
    """A position of Kuhn poker.

    Attributes:
        cards: each player's card, 0 to 2; the highest is 2.
        bets: 0 for a pass and 1 for a bet, in order; -1 for those to come.
    """

    cards: Int[Array, "2"]
    bets: Int[Array, "3"]

    @property
    def num_bets(self) -> Int[Array, ""]:
        """How many moves have been made."""
        return (self.bets != NOTHING).sum(dtype=jnp.int32)


@final
class Kuhn(AbstractGame[KuhnState]):
    """Kuhn poker (1950): three cards, two players, one bet. Action 0 is to pass, 1 to bet.

    Each player pays one chip and gets a card. A player may bet a chip; the other may pass, and
    loses the pot, or bet a chip too. The higher card wins the pot otherwise. In the equilibrium the
    first player loses 1/18 of a chip a game.

    The observation has 11 numbers: seat (2), own card (3), and the three bets (2 each).
    """

    num_actions: int = eqx.field(static=True, default=2, init=False)
    num_players: int = eqx.field(static=True, default=2, init=False)

    def deal(self, key: Key[Array, ""]) -> tuple[KuhnState, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        return self.deal_cards(jax.random.permutation(key, 3)[:2])

    def deal_cards(self, cards: Int[Array, "2"]) -> tuple[KuhnState, Turn]:
        """Begins a game with given cards, one for each player."""
        state = KuhnState(cards.astype(jnp.int32), jnp.full(3, NOTHING, jnp.int32))
        return state, self._turn(state)

    def move(
        self, key: Key[Array, ""], state: KuhnState, action: Int[Array, ""]
    ) -> tuple[KuhnState, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        state = KuhnState(state.cards, state.bets.at[state.num_bets].set(action))
        return state, self._turn(state)

    def observe(self, state: KuhnState, player: Int[Array, ""]) -> Float[Array, "11"]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        card = jax.nn.one_hot(state.cards[player], 3)
        bets = jax.nn.one_hot(state.bets, 2).ravel()  # That of -1 is 0.
        return jnp.concatenate([jax.nn.one_hot(player, 2), card, bets])

    def draw(self, state: KuhnState) -> str:
        """Draws both cards and the bets."""
        cards = " ".join("JQK"[int(card)] for card in state.cards)
        return f"cards {cards}   bets {_told(state.bets, 'pb')}"

    def _turn(self, state: KuhnState) -> Turn:
        first, second, _ = state.bets
        made, player = state.num_bets, state.num_bets % 2
        is_second_pass = (first == 0) & (second == 1)  # The first player decides once more.
        is_over = (made == 3) | ((made == 2) & ~is_second_pass)
        # Whoever passes a bet loses a chip; two passes compare cards for one chip, two bets for 2.
        last, before = state.bets[made - 1], state.bets[made - 2]
        folds = (made > 1) & (last == 0) & (before == 1)
        wins = jnp.where(folds, player == 0, state.cards[0] > state.cards[1])
        chips = jnp.where((last == 1) & (before == 1), 2.0, 1.0)
        rewards = jnp.where(is_over, chips, 0) * jnp.where(wins, 1, -1) * jnp.array([1.0, -1.0])
        return Turn(player, jnp.ones(2, bool), rewards, is_over)


class LeducState(eqx.Module):
    """A position of Leduc poker.

    Attributes:
        cards: those of the players and the public one, 0 to 5; the rank is half of it.
        bets: the actions in each of the two rounds, in order; -1 for those to come.
        round: 0, or 1 after the public card.
        player: whose turn it is.
        paid: chips that each player has paid.
        folded: the player who has folded; -1 for nobody.
    """

    cards: Int[Array, "3"]
    bets: Int[Array, "2 4"]
    round: Int[Array, ""]
    player: Int[Array, ""]
    paid: Int[Array, "2"]
    folded: Int[Array, ""]


_FOLD, _CALL, _RAISE = range(3)
_ANTE, _RAISES, _MOST_RAISES = 1, (2, 4), 2


@final
class Leduc(AbstractGame[LeducState]):
    """Leduc poker (Southey et al. 2005, arXiv:1207.1411): six cards, two players, two rounds.

    There are two cards of each of three ranks. Each player pays one chip and gets a card; after the
    first round a public card is shown. In a round, two raises at most may be made, of 2 chips in
    the first and 4 in the second. A pair with the public card wins, else the higher rank; equal
    ranks share. The actions are 0 to fold, where there is a raise to pay, 1 to call or check, and 2
    to raise.

    The observation has 32 numbers: seat (2), rank of the own card (3) and of the public card (3),
    and the actions of both rounds (4 times 3 each). Suits do not matter, and are not shown.
    """

    num_actions: int = eqx.field(static=True, default=3, init=False)
    num_players: int = eqx.field(static=True, default=2, init=False)

    def deal(self, key: Key[Array, ""]) -> tuple[LeducState, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        return self.deal_cards(jax.random.permutation(key, 6)[:3])

    def deal_cards(self, cards: Int[Array, "3"]) -> tuple[LeducState, Turn]:
        """Begins a game with given cards: those of the players, and the public one."""
        state = LeducState(
            cards.astype(jnp.int32),
            bets=jnp.full((2, 4), NOTHING, jnp.int32),
            round=jnp.int32(0),
            player=jnp.int32(0),
            paid=jnp.full(2, _ANTE, jnp.int32),
            folded=jnp.int32(NOTHING),
        )
        return state, self._turn(state, jnp.array(False))

    def move(
        self, key: Key[Array, ""], state: LeducState, action: Int[Array, ""]
    ) -> tuple[LeducState, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        player, bets = state.player, state.bets[state.round]
        made = (bets != NOTHING).sum()
        most = state.paid.max() + jnp.where(action == _RAISE, jnp.asarray(_RAISES)[state.round], 0)
        paid = jnp.where(action == _FOLD, state.paid[player], most)
        # A call ends the round, unless it is the first move.
        ends = (action == _CALL) & (made > 0)
        is_over = (action == _FOLD) | (ends & (state.round == 1))
        state = LeducState(
            state.cards,
            bets=state.bets.at[state.round, made].set(action),
            round=jnp.where(ends, 1, state.round).astype(jnp.int32),
            player=jnp.where(ends, 0, 1 - player).astype(jnp.int32),
            paid=state.paid.at[player].set(paid.astype(jnp.int32)),
            folded=jnp.where(action == _FOLD, player, NOTHING).astype(jnp.int32),
        )
        return state, self._turn(state, is_over)

    def observe(self, state: LeducState, player: Int[Array, ""]) -> Float[Array, "32"]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        ranks = jax.nn.one_hot(state.cards // 2, 3)
        public = jnp.where(state.round == 1, ranks[2], 0)
        bets = jax.nn.one_hot(state.bets, 3).ravel()
        return jnp.concatenate([jax.nn.one_hot(player, 2), ranks[player], public, bets])

    def draw(self, state: LeducState) -> str:
        """Draws all cards, the bets and what both have paid."""
        first, second, public = ("JQK"[int(card) // 2] for card in state.cards)
        shown = public if int(state.round) else "-"
        bets = " / ".join(_told(each, "fcr") for each in state.bets)
        return f"cards {first} {second}   public {shown}   bets {bets}   paid {state.paid}"

    def _turn(self, state: LeducState, is_over: Bool[Array, ""]) -> Turn:
        own, other = state.paid[state.player], state.paid[1 - state.player]
        raises = (state.bets[state.round] == _RAISE).sum()
        mask = jnp.stack([other > own, jnp.array(True), raises < _MOST_RAISES])
        ranks = state.cards // 2
        strength = ranks[:2] + 3 * (ranks[:2] == ranks[2])
        shown = jnp.sign(strength[0] - strength[1])
        folded = jnp.where(state.folded == 1, 1, -1)
        wins = jnp.where(state.folded == NOTHING, shown, folded)  # Of the first player.
        gain = jnp.where(is_over, wins * state.paid.min(), 0).astype(jnp.float32)
        return Turn(state.player, mask | is_over, jnp.stack([gain, -gain]), is_over)


def _told(bets: Any, letters: str) -> str:
    return "".join(letters[int(bet)] for bet in bets if bet != NOTHING) or "-"
