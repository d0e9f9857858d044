"""The interface of games for several players who move in turn."""

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import equinox as eqx
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._trees import strong_types

State = TypeVar("State")


class Turn(eqx.Module):
    """What a move, or the deal, has led to.

    Attributes:
        player: whose turn it is, from 0.
        action_mask: True where an action is allowed to this player. At least one is.
        rewards: what each player gets for the move just made; not used after the deal.
        terminated: the game is over.
        truncated: the game was cut off, for example by a limit of moves.
        info: arrays for metrics, with the same keys and shapes from ``deal`` and ``move``.
        out: for each player, whether the game is over for this player alone: a player who died, or
            who takes no part. Such a player has no turn. None: nobody is.
    """

    player: Int[Array, ""] = eqx.field(converter=strong_types)
    action_mask: Bool[Array, " actions"]
    rewards: Float[Array, " players"] = eqx.field(converter=strong_types)
    terminated: Bool[Array, ""] = eqx.field(converter=strong_types)
    truncated: Bool[Array, ""] = eqx.field(converter=strong_types, default=False)
    info: dict[str, Array] = eqx.field(converter=strong_types, default_factory=dict[str, Array])
    out: Bool[Array, " players"] | None = None

    def terminated_for(self, player: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the game is over, at least for this player, other than by being cut off."""
        return self.terminated if self.out is None else self.terminated | self.out[player]

    def is_over_for(self, player: Int[Array, ""]) -> Bool[Array, ""]:
        """Whether the game is over, at least for this player, or was cut off."""
        return self.terminated_for(player) | self.truncated


class AbstractGame(eqx.Module, Generic[State]):
    """A game of players who move in turn: pure, jit-able and vmap-able.

    :class:`Seat` makes an environment of a game. :func:`check_game` tests these laws:

    - ``deal`` and ``move`` are deterministic in their arguments; states do not hold a key.
    - States and observations keep their structure, shapes and dtypes, also from player to player.
    - A player whose turn it is, is not out.
    - An observation holds what its player knows, and nothing that is hidden from this player.

    A game may have a method ``draw(state)``, which returns a
    :data:`ppo_mask.envs.drawing.Picture`.

    Attributes:
        num_actions: length of the mask, for all players.
        num_players: number of players.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> from ppo_mask.games import AbstractGame, Seat, Turn, random_opponent
        >>> class Nim(AbstractGame):  # Who takes the last of 7 stones wins.
        ...     num_actions: int = eqx.field(static=True, default=3)
        ...     num_players: int = eqx.field(static=True, default=2)
        ...     def deal(self, key):
        ...         return self.turn(jnp.int32(7), jnp.int32(0), jnp.zeros(2))
        ...     def move(self, key, state, action):
        ...         stones, player = state
        ...         left = stones - action - 1
        ...         wins = jnp.where(jnp.arange(2) == player, 1.0, -1.0)
        ...         return self.turn(left, 1 - player, jnp.where(left <= 0, wins, 0))
        ...     def observe(self, state, player):
        ...         return jax.nn.one_hot(state[0], 8)
        ...     def turn(self, stones, player, rewards):
        ...         mask = (jnp.arange(3) < stones) | (stones <= 0)
        ...         return (stones, player), Turn(player, mask, rewards, stones <= 0)
        >>> env = Seat(Nim(), random_opponent)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> print(timestep.action_mask)
        [ True  True  True]
    """

    if TYPE_CHECKING:
        num_actions = cast(Any, None)
        num_players = cast(Any, None)
    else:
        num_actions: eqx.AbstractVar[int]
        num_players: eqx.AbstractVar[int]

    @abstractmethod
    def deal(self, key: Key[Array, ""]) -> tuple[State, Turn]:
        """Begins a game.

        Args:
            key: the random key of the game's beginning.

        Returns:
            The state, which is any tree of arrays, and the first turn.
        """

    @abstractmethod
    def move(self, key: Key[Array, ""], state: State, action: Int[Array, ""]) -> tuple[State, Turn]:
        """Makes a move of the player whose turn it is.

        Args:
            key: the random key of the move.
            state: a state of a game that is not over.
            action: from 0 to ``num_actions`` - 1.

        Returns:
            The next state and its turn.
        """

    @abstractmethod
    def observe(self, state: State, player: Int[Array, ""]) -> ArrayTree:
        """Returns what a player knows of a state, also if it is not this player's turn."""
