"""A game from the side of one of its players."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.envs._env import declared_info
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.drawing import Picture
from ppo_mask.games._game import AbstractGame, Turn
from ppo_mask.games._opponents import (
    Lineup,
    Opponent,
    OpponentFunction,
    as_opponent,
    choose_reply,
    initial_hidden,
)
from ppo_mask.jax_tools import ArrayTree, IntScalarLike
from ppo_mask.jax_tools._trees import strong_types, zeros_from_shapes
from ppo_mask.networks import Model


class Match(eqx.Module):
    """The state of a game in which one player is the agent.

    Attributes:
        game: the game's state.
        agent: which player is the agent.
        begins: whether the agent makes the first move.
        score: the sum of the agent's rewards so far.
        hidden: the opponent's hidden state for each player.
    """

    game: ArrayTree
    agent: Int[Array, ""]
    begins: Bool[Array, ""]
    score: Float[Array, ""]
    hidden: ArrayTree


def outcome_of(score: Float[Array, ""]) -> Float[Array, ""]:
    """Returns 1, ½ or 0 for a win, a draw or a loss, given the sum of a player's rewards."""
    return 0.5 + 0.5 * jnp.sign(score)


@final
class Seat(AbstractEnv[Match]):
    """A game from the side of one of its players, the agent.

    The opponent plays all other players: within ``step``, and within ``reset`` if the agent does
    not begin. The reward is the sum of the agent's rewards until its next turn. The episode ends
    when the game is over, or over for the agent. If that is so before the agent's first turn, a new
    game is dealt.

    In games of several players, ``info`` has the game's own entries, ``begins``, and ``outcome``: 1
    if the agent's rewards in this game are more than 0, ½ if they are 0, else 0.

    Attributes:
        game: the game.
        opponent: a model, or a function; a model's parameters are arrays of the environment, so
            :class:`~ppo_mask.training.SelfPlay` can put a copy of the learner here. None in games
            for one player.
        begins: whether the agent makes the first move; None samples the agent's seat for each
            episode.
        num_actions: the number of actions.
    """

    game: AbstractGame[Any]
    opponent: Model | OpponentFunction | Lineup | None
    begins: bool | None = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)

    def __init__(
        self, game: AbstractGame[Any], opponent: Opponent | None = None, begins: bool | None = None
    ):
        """Takes a seat in a game.

        Args:
            game: the game.
            opponent: who plays the other seats: a function of an observation, a mask and a key that
                returns an action; or a network or policy, whose actions are sampled. The first
                allowed action replaces an action that is not allowed.
            begins: whether the agent makes the first move; None samples the agent's seat.

        Raises:
            ValueError: the opponent is missing, or a network for another game; or a game for one
                player is given an opponent or ``begins``.
        """
        name, players = getattr(game, "name", type(game).__name__), game.num_players
        if players > 1 and opponent is None:
            raise ValueError(
                f"{name} has {players} players: it needs an opponent, such as "
                "ppo_mask.games.random_opponent (--opponent random)"
            )
        if players == 1 and (opponent is not None or begins is not None):
            raise ValueError(f"{name} is played alone: leave opponent and begins out")

        def see() -> tuple[ArrayTree, Array]:
            state, turn = game.deal(jax.random.key(0))
            return game.observe(state, turn.player), turn.action_mask

        self.game = game
        self.opponent = as_opponent(opponent, name, see)
        self.begins = begins
        self.num_actions = int(game.num_actions)

    @property
    def observation_info(self) -> Any:
        """What the game knows of its observations."""
        return declared_info(self.game)

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[Match, TimeStep]:
        """Deals, and plays up to the agent's first turn."""
        if self.game.num_players == 1:
            match, turn = self._deal(key)
            return match, self._timestep(match, turn, jnp.zeros(()))

        def deal(carry: Any) -> Any:
            key, deal_key = jax.random.split(carry[0])
            return key, *self._deal(deal_key)

        def is_over(carry: Any) -> Bool[Array, ""]:
            _, match, turn = carry
            return turn.is_over_for(match.agent)

        nothing, unset = zeros_from_shapes(jax.eval_shape(self._deal, key))
        # Marked as over, so that the loop deals the first game too.
        unset = eqx.tree_at(lambda turn: turn.terminated, unset, jnp.array(True))
        _, match, turn = jax.lax.while_loop(is_over, deal, (key, nothing, unset))
        return match, self._timestep(match, turn, jnp.zeros(()))

    @jitted
    def step(
        self, key: Key[Array, ""], state: Match, action: IntScalarLike
    ) -> tuple[Match, TimeStep]:
        """Takes one action; the opponent then moves until the agent's turn or the game's end."""
        move_key, others_key = jax.random.split(key)
        game, turn = self._move(move_key, state.game, jnp.asarray(action, jnp.int32))
        gained = turn.rewards[state.agent]
        match = eqx.tree_at(lambda x: (x.game, x.score), state, (game, state.score + gained))
        after, turn = self._let_others_move(others_key, match, turn)
        return after, self._timestep(after, turn, after.score - state.score)

    def draw(self, state: Match, timestep: TimeStep) -> Picture | None:
        """Draws the game by its own ``draw``."""
        del timestep
        draw = getattr(self.game, "draw", None)
        return None if draw is None else draw(state.game)

    def _move(self, *args: Any) -> tuple[ArrayTree, Turn]:
        return strong_types(self.game.move(*args))

    def _deal(self, key: Key[Array, ""]) -> tuple[Match, Turn]:
        game_key, agent_key, others_key = jax.random.split(key, 3)
        game, turn = strong_types(self.game.deal(game_key))
        first, players = turn.player, self.game.num_players
        if self.begins:
            agent = first
        elif turn.out is None:
            after_first = jax.random.randint(
                agent_key, (), 0 if self.begins is None else 1, players
            )
            agent = after_first if self.begins is None else (first + after_first) % players
        else:
            may_be = ~turn.out if self.begins is None else ~turn.out.at[first].set(True)
            agent = jax.random.categorical(agent_key, jnp.where(may_be, 0.0, -jnp.inf))
        agent = agent.astype(jnp.int32)
        hidden = initial_hidden(self.opponent, players)
        match = Match(game, agent, agent == first, jnp.zeros(()), hidden)
        return self._let_others_move(others_key, match, turn)

    def _let_others_move(self, key: Key[Array, ""], match: Match, turn: Turn) -> tuple[Match, Turn]:
        """Lets the opponent move until the agent's turn or the agent's end."""
        if self.game.num_players == 1:
            return match, turn
        agent = match.agent

        def goes_on(carry: Any) -> Bool[Array, ""]:
            turn = carry[-1]
            return (turn.player != agent) & ~turn.is_over_for(agent)

        def move(carry: Any) -> Any:
            key, game, score, hidden, turn = carry
            key, reply_key, move_key = jax.random.split(key, 3)
            seen = self.game.observe(game, turn.player)
            action, hidden = choose_reply(
                self.opponent, seen, turn.action_mask, hidden, turn.player, reply_key
            )
            game, turn = self._move(move_key, game, action)
            return key, game, score + turn.rewards[agent], hidden, turn

        carry = (key, match.game, match.score, match.hidden, turn)
        _, game, score, hidden, turn = jax.lax.while_loop(goes_on, move, carry)
        return Match(game, agent, match.begins, score, hidden), turn

    def _timestep(self, match: Match, turn: Turn, reward: Float[Array, ""]) -> TimeStep:
        info = turn.info
        if self.game.num_players > 1:
            info = {**info, "begins": match.begins, "outcome": outcome_of(match.score)}
        terminated = turn.terminated_for(match.agent)
        return TimeStep(
            observation=strong_types(self.game.observe(match.game, match.agent)),
            action_mask=turn.action_mask | terminated,
            reward=reward,
            terminated=terminated,
            truncated=turn.truncated & ~terminated,
            info=info,
        )
