"""Games of pgx: board and card games against an opponent, and 2048 and MinAtar for one player.

Koyamada et al. 2023, arXiv:2303.17503; https://github.com/sotetsuk/pgx
"""

from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.adapters._shared import (
    Opponent,
    OpponentFunction,
    StaticObject,
    as_opponent,
    choose_reply,
    import_library,
    jitted,
    make_named,
    make_timestep,
    random_opponent,
)
from ppo_mask.envs import AbstractEnv, ArrayInfo, TimeStep
from ppo_mask.envs.drawing import Svg
from ppo_mask.jax_tools import ArrayTree, IntScalarLike
from ppo_mask.jax_tools._trees import strong_types, zeros_from_shapes
from ppo_mask.networks import Model

__all__ = ["Match", "Opponent", "PgxEnv", "random_opponent"]


class Match(eqx.Module):
    """The state of a game, and which player is the agent.

    Attributes:
        game: the state of pgx.
        agent: which player is the agent, counted from 0.
        begins: whether the agent makes the first move.
    """

    game: ArrayTree
    agent: Int[Array, ""]
    begins: Bool[Array, ""]


@final
class PgxEnv(AbstractEnv[Match]):
    """A game of pgx from the side of one of its players, the agent.

    In games of several players, the opponent plays all other players: within ``step``, and within
    ``reset`` if the agent does not begin. The reward is the sum of the agent's rewards until the
    agent's next turn. If a game ends before the agent's first move, a new game replaces it.
    ``info`` has ``begins`` in games of several players.

    The mask is pgx's; an action outside the mask loses the game at once.

    :class:`~ppo_mask.training.SelfPlay` trains against a copy of the learner. The copy gets pgx's
    own observations.

    Attributes:
        opponent: the function or network that plays the other players. A network's parameters are
            arrays of the environment.
        begins: whether the agent makes the first move; None samples it for each episode.
        num_actions: the number of actions.
        num_players: the number of players.
        observation_info: a board's channels come last.
    """

    opponent: Model | OpponentFunction | None
    begins: bool | None = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    num_players: int = eqx.field(static=True)
    _library_env: StaticObject = eqx.field(static=True)
    observation_info: ClassVar = ArrayInfo(channels_first=False)

    def __init__(self, game: Any, opponent: Opponent | None = None, begins: bool | None = None):
        """Wraps a game, which may be given by its name.

        Args:
            game: an environment of pgx, or a name that ``pgx.make`` knows.
            opponent: a function of an observation, a mask and a key that returns an action; or a
                network, whose actions are sampled. The first allowed action replaces an action that
                is not allowed. None in games for one player.
            begins: whether the agent makes the first move; None samples it for each episode.

        Raises:
            RunError: pgx is not installed.
            ValueError: the name is unknown; the opponent is missing, recurrent, or a network for
                another game; or a game for one player is given an opponent or ``begins``.
        """
        pgx = import_library("pgx")
        game = make_named(pgx.make, "pgx", game)
        if game.num_players > 1 and opponent is None:
            raise ValueError(
                f"{game.id} of pgx has {game.num_players} players: it needs an opponent, such as "
                "ppo_mask.adapters.pgx.random_opponent (--opponent random)"
            )
        if game.num_players == 1 and (opponent is not None or begins is not None):
            raise ValueError(f"{game.id} of pgx is played alone: leave opponent and begins out")

        def see() -> tuple[Any, Any]:
            first = game.init(jax.random.key(0))
            return first.observation, first.legal_action_mask

        self.opponent = as_opponent(opponent, f"{game.id} of pgx", see)
        self.begins = begins
        self.num_actions = int(game.num_actions)
        self.num_players = int(game.num_players)
        self._library_env = StaticObject(game)

    @property
    def game(self) -> Any:
        """The environment of pgx."""
        return self._library_env.value

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[Match, TimeStep]:
        """Starts a game, and plays it up to the agent's first turn."""
        if self.num_players == 1:
            return self._convert(self._deal(key), jnp.zeros(()))

        def deal(carry: tuple[Any, Match]) -> tuple[Any, Match]:
            key, deal_key = jax.random.split(carry[0])
            return key, self._deal(deal_key)

        def over(carry: tuple[Any, Match]) -> Bool[Array, ""]:
            return _is_over(carry[1].game)

        nothing = zeros_from_shapes(jax.eval_shape(self._deal, key))
        # Marked as over, so that the loop deals the first game too.
        none = eqx.tree_at(lambda match: match.game.terminated, nothing, jnp.array(True))
        _, match = jax.lax.while_loop(over, deal, (key, none))
        return self._convert(match, jnp.zeros(()))

    @jitted
    def step(
        self, key: Key[Array, ""], state: Match, action: IntScalarLike
    ) -> tuple[Match, TimeStep]:
        """Takes one action; the opponent then moves until the agent's turn or the game's end."""
        step_key, others_key = jax.random.split(key)
        game = strong_types(self.game.step(state.game, jnp.asarray(action, jnp.int32), step_key))
        reward = game.rewards[state.agent]
        match = Match(game, state.agent, state.begins)
        match, gained = self._let_others_move(others_key, match)
        return self._convert(match, reward + gained)

    def draw(self, state: Match, timestep: TimeStep) -> Svg:
        """Draws the game with pgx's visualizer."""
        del timestep
        return Svg(state.game.to_svg())

    def _deal(self, key: Key[Array, ""]) -> Match:
        game_key, agent_key, others_key = jax.random.split(key, 3)
        game = strong_types(self.game.init(game_key))
        first, players = game.current_player, self.num_players
        if self.begins is None:
            agent = jax.random.randint(agent_key, (), 0, players)
        elif self.begins:
            agent = first
        else:
            agent = (first + jax.random.randint(agent_key, (), 1, players)) % players
        match = Match(game, agent.astype(jnp.int32), agent == first)
        return self._let_others_move(others_key, match)[0]

    def _let_others_move(self, key: Any, match: Match) -> tuple[Match, Float[Array, ""]]:
        """Lets the opponent move until the agent's turn or the game's end, and sums rewards."""
        if self.num_players == 1:
            return match, jnp.zeros(())

        def others_turn(carry: tuple[Any, Any, Any]) -> Bool[Array, ""]:
            _, game, _ = carry
            return (game.current_player != match.agent) & ~_is_over(game)

        def move(carry: tuple[Any, Any, Any]) -> tuple[Any, Any, Any]:
            key, game, reward = carry
            key, action_key, step_key = jax.random.split(key, 3)
            assert self.opponent is not None  # __init__ has checked this.
            mask = game.legal_action_mask
            action = choose_reply(self.opponent, game.observation, mask, action_key)
            game = strong_types(self.game.step(game, action, step_key))
            return key, game, reward + game.rewards[match.agent]

        _, game, reward = jax.lax.while_loop(others_turn, move, (key, match.game, jnp.zeros(())))
        return Match(game, match.agent, match.begins), reward

    def _convert(self, match: Match, reward: Float[Array, ""]) -> tuple[Match, TimeStep]:
        # The observation is the agent's, even if the game ended at another player's turn. Not
        # `observe`, since its argument for the player is deprecated.
        game = match.game
        observation = strong_types(self.game._observe(game, match.agent))
        match = Match(game.replace(observation=observation), match.agent, match.begins)
        info = {"begins": match.begins} if self.num_players > 1 else {}
        return match, make_timestep(
            observation, game.legal_action_mask, reward, game.terminated, game.truncated, info
        )


def _is_over(game: Any) -> Bool[Array, ""]:
    return game.terminated | game.truncated
