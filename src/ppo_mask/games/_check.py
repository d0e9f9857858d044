"""Tests whether a game obeys the laws of :class:`~ppo_mask.games.AbstractGame`."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from ppo_mask.envs import check_env
from ppo_mask.envs._shapes import require
from ppo_mask.errors import ProtocolError
from ppo_mask.games._game import AbstractGame
from ppo_mask.games._opponents import random_opponent
from ppo_mask.games._seat import Seat
from ppo_mask.jax_tools._trees import changes


def check_game(
    game: AbstractGame[Any], *, key: Key[Array, ""] | None = None, num_steps: int = 200
) -> None:
    """Tests every law of a game by playing random allowed actions in all seats.

    Args:
        game: the game.
        key: the random key of the test; None for a fixed key.
        num_steps: moves of one player in each of 8 games side by side; choose enough that some
            games end.

    Raises:
        ProtocolError: a law is broken.
    """
    key = jax.random.key(0) if key is None else key
    state, turn = jax.eval_shape(game.deal, key)
    action = jax.ShapeDtypeStruct((), jnp.int32)
    then = jax.eval_shape(game.move, key, state, action)
    for name, was, now in sorted(changes((state, turn), then)):
        raise ProtocolError(f"(state, turn){name} is {was} from deal but {now} from move")
    if turn.rewards.shape != (game.num_players,):
        raise ProtocolError(
            f"rewards must be one for each of {game.num_players} players, got shape "
            f"{turn.rewards.shape}"
        )
    check_env(Seat(game, random_opponent if game.num_players > 1 else None), num_steps=num_steps)

    @jax.jit
    def play(key: Any, carry: Any) -> Any:
        state, turn = carry
        action_key, move_key, deal_key = jax.random.split(key, 3)
        action = random_opponent((), turn.action_mask, action_key)
        after = game.move(move_key, state, action)
        over = after[1].terminated | after[1].truncated
        fresh = game.deal(deal_key)
        return jax.tree.map(lambda a, b: jnp.where(over, a, b), fresh, after), after[1], over

    carry = jax.jit(game.deal)(key)
    for step_key in jax.random.split(key, num_steps):
        carry, turn, over = play(step_key, carry)
        is_player = (turn.player >= 0) & (turn.player < game.num_players)
        require(is_player, f"player must be 0 to {game.num_players - 1}, got {turn.player}")
        has_turn = turn.out is None or ~turn.out[turn.player] | over
        require(has_turn, f"player {turn.player} is out, and cannot have the turn")
