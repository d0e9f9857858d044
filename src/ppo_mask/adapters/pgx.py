"""Games of pgx: board and card games, and 2048 and MinAtar for one player.

Koyamada et al. 2023, arXiv:2303.17503; https://github.com/sotetsuk/pgx
"""

from typing import Any, ClassVar, final

import equinox as eqx
import jax
from jaxtyping import Array, Int, Key

from ppo_mask.adapters._shared import import_library, make_named
from ppo_mask.envs import ArrayInfo
from ppo_mask.envs.drawing import Svg
from ppo_mask.games import AbstractGame, Turn
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._trees import strong_types


@final
class PgxGame(AbstractGame[ArrayTree]):
    """A game of pgx; ``Seat(PgxGame("connect_four"), opponent)`` is an environment.

    The mask is pgx's; an action outside the mask loses the game at once.

    Attributes:
        num_actions: the number of actions.
        num_players: the number of players; a :class:`~ppo_mask.games.Seat` in a game for one player
            has no opponent.
        name: pgx's name of the game.
        game: the environment of pgx.
        observation_info: a board's channels come last.
    """

    num_actions: int = eqx.field(static=True)
    num_players: int = eqx.field(static=True)
    name: str = eqx.field(static=True)
    game: Any = eqx.field(static=True)
    observation_info: ClassVar = ArrayInfo(channels_first=False)

    def __init__(self, game: Any):
        """Wraps a game, which may be given by its name.

        Args:
            game: an environment of pgx, or a name that ``pgx.make`` knows.

        Raises:
            RunError: pgx is not installed.
            ValueError: the name is unknown.
        """
        game = make_named(import_library("pgx").make, "pgx", game)
        self.num_actions, self.num_players = int(game.num_actions), int(game.num_players)
        self.name = f"{game.id} of pgx"
        self.game = game

    def deal(self, key: Key[Array, ""]) -> tuple[ArrayTree, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        return self._turn(self.game.init(key))

    def move(
        self, key: Key[Array, ""], state: ArrayTree, action: Int[Array, ""]
    ) -> tuple[ArrayTree, Turn]:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        return self._turn(self.game.step(state, action, key))

    def observe(self, state: ArrayTree, player: Int[Array, ""]) -> ArrayTree:
        """See :class:`~ppo_mask.games.AbstractGame`."""
        # Not `observe`, since its argument for the player is deprecated.
        return self.game._observe(state, player)

    def draw(self, state: ArrayTree) -> Svg:
        """Draws the game with pgx's visualizer."""
        state_of_pgx: Any = jax.device_get(state)
        return Svg(state_of_pgx.to_svg())

    def _turn(self, state: Any) -> tuple[ArrayTree, Turn]:
        ends = state.terminated, state.truncated
        turn = Turn(state.current_player, state.legal_action_mask, state.rewards, *ends)
        # Some games begin with Python numbers, such as Othello.
        return strong_types(state), turn
