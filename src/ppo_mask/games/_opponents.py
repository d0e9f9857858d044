"""Opponents: whoever plays the other seats of a game."""

from collections.abc import Callable
from typing import Any, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Key, TypeCheckError

from ppo_mask.envs._vector import PerGroup
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import AbstractActorCritic, MaskedCategorical, Model, Policy, as_model

OpponentFunction: TypeAlias = Callable[[Any, Any, Any], Any]
Opponent: TypeAlias = OpponentFunction | Model | AbstractActorCritic | Policy
"""A function of an observation, a mask and a key that returns an action; or a network, whose
actions are sampled."""


def random_opponent(
    observation: ArrayTree, mask: Bool[Array, " actions"], key: Key[Array, ""]
) -> Int[Array, ""]:
    """Samples an allowed action uniformly.

    Args:
        observation: not used.
        mask: True where an action is allowed.
        key: for sampling.

    Returns:
        The action's number.
    """
    del observation
    return MaskedCategorical(jnp.zeros(mask.shape), mask).sample(key)


class Lineup(eqx.Module):
    """Opponents for groups of environments: a copy of a model for each, or a fixed player.

    Attributes:
        of_group: each group's copy of the model, and the number of the player that plays there: 0
            for the copy, ``n`` for the ``n``-th fixed player.
        fixed: the fixed players.
    """

    of_group: PerGroup
    fixed: tuple[Model | OpponentFunction, ...]

    @property
    def players(self) -> tuple[Model | OpponentFunction, ...]:
        """The copy, and the fixed players, in an environment of one group."""
        return self.of_group.each[0], *self.fixed


def as_player(given: Any) -> Any:
    """Returns a network, or a policy, as a model; a function stays as it is."""
    return as_model(given) if isinstance(given, Model | AbstractActorCritic | Policy) else given


def as_opponent(given: Any, game: str, see: Callable[[], tuple[Any, Any]]) -> Any:
    """Returns a network, or a policy, as a model that fits a game; a function stays as it is.

    Args:
        given: the opponent.
        game: the game's name.
        see: makes an observation and a mask of the game; only their shapes are computed.

    Raises:
        ValueError: the network is for another game.
    """
    opponent = as_player(given)
    if not isinstance(opponent, Model):
        return opponent
    observation, mask = jax.eval_shape(see)
    try:
        eqx.filter_eval_shape(opponent, observation, mask)
    except (TypeError, ValueError, TypeCheckError) as error:
        shapes = ", ".join(str(x.shape) for x in jax.tree.leaves(observation))
        raise ValueError(
            f"the opponent {type(opponent.network).__name__} is for another game: {game} has "
            f"observations of shape {shapes} and {mask.size} actions"
        ) from error
    return opponent


def initial_hidden(opponent: Any, num_players: int) -> ArrayTree:
    """Returns an opponent's hidden state for each player; empty if it has none."""
    if isinstance(opponent, Lineup):
        return tuple(initial_hidden(player, num_players) for player in opponent.players)
    hidden: ArrayTree = opponent.initial_hidden() if isinstance(opponent, Model) else ()
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (num_players, *x.shape)), hidden)


def choose_reply(
    opponent: Any,
    observation: ArrayTree,
    mask: Bool[Array, " actions"],
    hidden: ArrayTree,
    player: Int[Array, ""],
    key: Key[Array, ""],
) -> tuple[Int[Array, ""], ArrayTree]:
    """Chooses an opponent's action; if it is not allowed, returns the first allowed action.

    Args:
        opponent: a model, a function, or a lineup of them.
        observation: what the player sees.
        mask: True where an action is allowed.
        hidden: the opponent's hidden state for each player.
        player: whose turn it is.
        key: for sampling.

    Returns:
        The action, and the hidden states after it.
    """
    if isinstance(opponent, Lineup):
        seen = (observation, mask)
        replies = [
            choose_reply(who, *seen, own, player, key)
            for who, own in zip(opponent.players, hidden, strict=True)
        ]
        actions, hidden = zip(*replies, strict=True)
        return jnp.stack(actions)[opponent.of_group.each[1]], hidden
    if isinstance(opponent, Model):
        own = jax.tree.map(lambda x: x[player], hidden)
        distribution, _, own = opponent.advance(observation, mask, own)
        hidden = jax.tree.map(lambda x, new: x.at[player].set(new), hidden, own)
        action = distribution.sample(key)
    else:
        action = opponent(observation, mask, key)
    return jnp.where(mask[action], action, jnp.argmax(mask)).astype(jnp.int32), hidden
