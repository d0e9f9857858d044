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
from jaxtyping import Array, Bool, Key

from ppo_mask.adapters._on_host._makers import Mask
from ppo_mask.adapters._on_host._moves import OTHERS_TURN, Moves, as_parts
from ppo_mask.adapters._on_host._stepper import IDLE
from ppo_mask.adapters._shared import import_library
from ppo_mask.adapters.from_gymnasium import GymnasiumEnv, HostState, calls_host
from ppo_mask.envs import AbstractEnv, Next, TimeStep
from ppo_mask.envs.actions import Action, ActionLike, Actions
from ppo_mask.envs.drawing import Picture
from ppo_mask.games import Opponent, random_opponent
from ppo_mask.games._opponents import OpponentFunction, as_opponent, choose_reply
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import Model
from ppo_mask.networks._model import is_recurrent


@final
class PettingZooEnv(AbstractEnv[HostState]):
    """A game of PettingZoo from the side of one of its players, the agent.

    Each episode samples the agent's seat among those who take part, and so who begins. The opponent
    plays all other seats: within ``step``, and within ``reset`` if the agent does not begin. The
    opponent is a part of the compiled program, which calls Python once for each move. So
    :class:`~ppo_mask.training.SelfPlay` can train against a copy of the learner.

    The reward is the sum of the agent's rewards until its next turn. A game that ends before the
    agent's first move is replaced by a new one. Masks, workers and limits are those of
    :class:`~ppo_mask.adapters.from_gymnasium.GymnasiumEnv`. The observation does not contain the
    mask.

    Attributes:
        opponent: the function or network that plays the other seats. A network's parameters are
            arrays of the environment.
        num_actions: the number of actions.
    """

    opponent: Model | OpponentFunction
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
            ValueError: the opponent is recurrent, or a network for another game.
        """
        import_library("pettingzoo")
        where = (lambda moves: mask(moves.game)) if callable(mask) else mask
        self._moves = GymnasiumEnv(partial(Moves, make), num_workers=num_workers, mask=where)
        self.num_actions = cast(int, self._moves.num_actions)
        self._hidden = (OTHERS_TURN, "action_mask", "valid_actions", str(mask))

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

    @calls_host
    def reset(self, key: Key[Array, ""]) -> tuple[HostState, TimeStep]:
        """Starts a game, and plays it up to the agent's first turn."""
        game_key, others_key = jax.random.split(key)
        state, first = self._moves.reset(game_key)
        following = Next(state, first.observation, first.action_mask)
        ended = jnp.array(True)  # The others' moves belong to no step of the agent.
        first, following = self._let_others_move(others_key, first, following, ended, False)
        seen = {"observation": following.observation, "action_mask": following.action_mask}
        return following.state, dataclasses.replace(first, **seen)

    def step(
        self, key: Key[Array, ""], state: HostState, action: ActionLike
    ) -> tuple[HostState, TimeStep]:
        """Takes one action; the opponent then moves until the agent's turn or the game's end."""
        action = Actions.of(self.num_actions).convert(action)
        timestep, following = self.step_and_reset(key, key, state, action)
        return following.state, timestep

    @calls_host
    def step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: HostState,
        action: Action,
        cut: Bool[Array, ""] | bool = False,
    ) -> tuple[TimeStep, Next[HostState]]:
        last, following = self._moves.step_and_reset(step_key, reset_key, state, action)
        ended = last.terminated | last.truncated
        return self._let_others_move(step_key, last, following, ended, cut)

    def draw(self, state: HostState, timestep: TimeStep) -> Picture | None:
        """Draws the game by its own ``render``; see :class:`GymnasiumEnv`."""
        return self._moves.draw(state, timestep)

    def encode(self, observation: Any) -> ArrayTree:
        """Converts what the game's ``observe`` returns to a policy's input."""
        return self._show(self._moves.encode(as_parts(observation) | {OTHERS_TURN: False}))

    def _let_others_move(
        self, key: Any, last: TimeStep, following: Next[HostState], ended: Any, cut: Any
    ) -> tuple[TimeStep, Next[HostState]]:
        """Plays the other seats' moves, up to the agent's next turn.

        ``last`` is the time step of the agent's move. Until the episode has ``ended``, the time
        step of each reply replaces ``last``. If ``cut``, the game is truncated at the agent's turn,
        and a new game begins.
        """
        if isinstance(self.opponent, Model) and is_recurrent(self.opponent):
            raise ValueError(
                "a recurrent network cannot be the opponent in PettingZoo, where nobody keeps its "
                "hidden state; a ppo_mask.games.Seat does"
            )

        def goes_on(carry: Any) -> Bool[Array, ""]:
            _, _, following, ended = carry
            return following.observation[OTHERS_TURN] | (cut & ~ended)

        def move(carry: Any) -> Any:
            key, last, following, ended = carry
            key, reply_key, reset_key = jax.random.split(key, 3)
            is_reply, mask = following.observation[OTHERS_TURN], following.action_mask
            seen = self._show(following.observation)
            # Only a move can truncate a game, so a game to be truncated gets one more move.
            seat = jnp.int32(0)  # A function, or a network without a hidden state.
            reply, _ = choose_reply(self.opponent, seen, mask, (), seat, reply_key)
            action = jnp.where(is_reply, reply, jnp.argmax(mask))
            action = jnp.where(goes_on(carry), action, IDLE)  # Under vmap, other games may go on.
            now, following = self._moves.step_and_reset(
                reply_key, reset_key, following.state, action, ~is_reply
            )
            cut_off = dataclasses.replace(last, truncated=~is_reply, action_mask=mask | True)
            last = _select(ended, last, _select(is_reply, now, cut_off))
            return key, last, following, ended | now.terminated | now.truncated

        _, last, following, _ = jax.lax.while_loop(goes_on, move, (key, last, following, ended))
        last = dataclasses.replace(last, observation=self._show(last.observation))
        seen = self._show(following.observation)
        return last, dataclasses.replace(following, observation=seen)

    def _show(self, observation: Any) -> Any:
        parts = {name: x for name, x in observation.items() if name not in self._hidden}
        return next(iter(parts.values())) if len(parts) == 1 else parts


def _select(condition: Any, one: Any, other: Any) -> Any:
    return jax.tree.map(partial(jnp.where, condition), one, other)
