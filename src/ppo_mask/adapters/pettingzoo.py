"""AEC games of PettingZoo, from the side of one player.

Terry et al. 2021, arXiv:2009.14471; https://pettingzoo.farama.org
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.adapters._on_host._makers import Mask
from ppo_mask.adapters._on_host._moves import TURN, Moves, as_parts
from ppo_mask.adapters._on_host._stepper import IDLE
from ppo_mask.adapters._shared import import_library
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv, HostState
from ppo_mask.envs import AbstractEnv, Next, TimeStep
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.actions import Action, ActionLike, Actions
from ppo_mask.envs.drawing import Picture
from ppo_mask.games import Opponent, random_opponent
from ppo_mask.games._opponents import (
    Lineup,
    OpponentFunction,
    as_opponent,
    choose_reply,
    initial_hidden,
)
from ppo_mask.games._seat import outcome_of
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import Model


class HostMatch(eqx.Module):
    """The state of a game of PettingZoo in which one player is the agent.

    Attributes:
        moves: the game's state.
        score: the sum of the agent's rewards so far.
        hidden: the opponent's hidden state for each player.
    """

    moves: HostState
    score: Float[Array, ""]
    hidden: ArrayTree


@final
class PettingZooEnv(AbstractEnv[HostMatch]):
    """A game of PettingZoo from the side of one of its players, the agent.

    Each episode samples the agent's seat among those who take part, and so who begins. The opponent
    plays all other seats: within ``step``, and within ``reset`` if the agent does not begin. The
    opponent is a part of the compiled program, which calls Python once for each move. So
    :class:`~ppo_mask.training.SelfPlay` can train against a copy of the learner.

    The reward is the sum of the agent's rewards until its next turn; ``info["outcome"]`` is that of
    a :class:`~ppo_mask.games.Seat`. A game that ends before the
    agent's first move is replaced by a new one. Masks, workers and limits are those of
    :class:`~ppo_mask.adapters.from_gymnasium.GymnasiumEnv`. The observation does not contain the
    mask.

    Attributes:
        opponent: the function or network that plays the other seats. A network's parameters are
            arrays of the environment.
        num_actions: the number of actions.
    """

    opponent: Model | OpponentFunction | Lineup
    num_actions: int = eqx.field(static=True)
    _moves: GymnasiumEnv
    _hidden: tuple[str, ...] = eqx.field(static=True)

    def __init__(
        self,
        make: Callable[[], Any],
        opponent: Opponent = random_opponent,
        *,
        num_workers: int = 0,
        mask: Mask = None,
    ):
        """Makes a game to inspect it, and closes it.

        Args:
            make: a function that makes an AEC game whose players have equal spaces, such as
                ``tictactoe_v3.env``.
            opponent: a function of an observation, a mask and a key that returns an action; or a
                network, whose actions are sampled. The first allowed action replaces an action that
                is not allowed.
            num_workers: as for ``GymnasiumEnv``.
            mask: as for ``GymnasiumEnv``; a function is called with the game.

        Raises:
            RunError: PettingZoo is not installed; the game cannot be made; it is no AEC game; its
                players have different spaces; or its actions are not Discrete.
            ValueError: the opponent is a network for another game.
        """
        import_library("pettingzoo")
        where = (lambda moves: mask(moves.game)) if callable(mask) else mask
        self._moves = GymnasiumEnv(partial(Moves, make), num_workers=num_workers, mask=where)
        self.num_actions = cast(int, self._moves.num_actions)
        self._hidden = (TURN, "action_mask", "valid_actions", str(mask))

        def see() -> tuple[Any, Any]:
            _, first = self._moves.reset(jax.random.key(0))
            return self._show(first.observation), first.action_mask

        self.opponent = as_opponent(opponent, self._moves.name, see)

    @property
    def observation_info(self) -> Any:
        """What the space of the observations knows of its arrays."""
        return self._show(self._moves.observation_info)

    def close(self) -> None:
        """Closes all games and ends their workers. A later step begins new games."""
        self._moves.close()

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[HostMatch, TimeStep]:
        """Starts a game, and plays it up to the agent's first turn."""
        game_key, others_key = jax.random.split(key)
        state, first = self._moves.reset(game_key)
        match = HostMatch(state, jnp.zeros(()), self._unaware())
        following = Next(match, first.observation, first.action_mask)
        ended = jnp.array(True)  # The others' moves belong to no step of the agent.
        first, following = self._let_others_move(others_key, first, following, ended, False)
        seen = {"observation": following.observation, "action_mask": following.action_mask}
        return following.state, dataclasses.replace(first, **seen)

    def step(
        self, key: Key[Array, ""], state: HostMatch, action: ActionLike
    ) -> tuple[HostMatch, TimeStep]:
        """Takes one action; the opponent then moves until the agent's turn or the game's end."""
        action = Actions.of(self.num_actions).convert(action)
        timestep, following = self.step_and_reset(key, key, state, action)
        return following.state, timestep

    @jitted
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: HostMatch,
        action: Action,
        cut: Bool[Array, ""] | bool = False,
    ) -> tuple[TimeStep, Next[HostMatch]]:
        last, following = self._moves.step_and_reset(step_key, reset_key, state.moves, action)
        ended = last.terminated | last.truncated
        match = HostMatch(following.state, state.score, self._remembered(state.hidden, ended))
        following = Next(match, following.observation, following.action_mask)
        return self._let_others_move(step_key, last, following, ended, cut)

    def draw(self, state: HostMatch, timestep: TimeStep) -> Picture | None:
        """Draws the game by its own ``render``; see :class:`GymnasiumEnv`."""
        return self._moves.draw(state.moves, timestep)

    def encode(self, observation: Any) -> ArrayTree:
        """Converts what the game's ``observe`` returns to a policy's input."""
        return self._show(self._moves.encode(as_parts(observation) | {TURN: 0}))

    def _let_others_move(
        self, key: Any, last: TimeStep, following: Next[HostMatch], ended: Any, cut: Any
    ) -> tuple[TimeStep, Next[HostMatch]]:
        """Plays the other seats' moves, up to the agent's next turn.

        ``last`` is the time step of the agent's move. Until the episode has ``ended``, the time
        step of each reply replaces ``last``. If ``cut``, the game is truncated at the agent's turn,
        and a new game begins.
        """

        def goes_on(carry: Any) -> Bool[Array, ""]:
            _, _, following, ended = carry
            return (following.observation[TURN] > 0) | (cut & ~ended)

        def move(carry: Any) -> Any:
            key, last, following, ended = carry
            key, reply_key, reset_key = jax.random.split(key, 3)
            turn, mask, match = following.observation[TURN], following.action_mask, following.state
            is_reply = turn > 0
            seen = self._show(following.observation)
            # Only a move can truncate a game, so a game to be truncated gets one more move.
            player = jnp.maximum(turn - 1, 0)
            reply, hidden = choose_reply(self.opponent, seen, mask, match.hidden, player, reply_key)
            action = jnp.where(is_reply, reply, jnp.argmax(mask))
            action = jnp.where(goes_on(carry), action, IDLE)  # Under vmap, other games may go on.
            now, following = self._moves.step_and_reset(
                reply_key, reset_key, match.moves, action, ~is_reply
            )
            hidden = self._remembered(hidden, now.terminated | now.truncated)
            following = dataclasses.replace(
                following, state=HostMatch(following.state, match.score, hidden)
            )
            cut_off = dataclasses.replace(last, truncated=~is_reply, action_mask=mask | True)
            last = _select(ended, last, _select(is_reply, now, cut_off))
            return key, last, following, ended | now.terminated | now.truncated

        _, last, following, _ = jax.lax.while_loop(goes_on, move, (key, last, following, ended))
        match, is_over = following.state, last.terminated | last.truncated
        score = match.score + last.reward
        info = {**last.info, "outcome": outcome_of(score)}
        last = dataclasses.replace(last, observation=self._show(last.observation), info=info)
        match = HostMatch(match.moves, jnp.where(is_over, 0, score), match.hidden)
        seen = self._show(following.observation)
        return last, Next(match, seen, following.action_mask)

    def _unaware(self) -> ArrayTree:
        """The opponent's hidden states at a game's beginning."""
        space: Any = self._moves.observation_info[TURN]
        return initial_hidden(self.opponent, int(space.bounds[1]))

    def _remembered(self, hidden: ArrayTree, ended: Bool[Array, ""]) -> ArrayTree:
        return _select(ended, self._unaware(), hidden)

    def _show(self, observation: Any) -> Any:
        parts = {name: x for name, x in observation.items() if name not in self._hidden}
        return next(iter(parts.values())) if len(parts) == 1 else parts


def _select(condition: Any, one: Any, other: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), one, other)
