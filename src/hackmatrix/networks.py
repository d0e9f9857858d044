"""The network that a HackMatrix run trains by default."""

from typing import Any, final

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Key

from hackmatrix.env import NUM_ACTIONS
from hackmatrix.observation import CHANNELS, OBSERVATION_SIZE, PLAYER_FEATURES, exit_channel
from hackmatrix.planes import SIZE
from hackmatrix.programs import NUM_PROGRAMS
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic

_REACH = 1  # cells around the player that are shown from where it stands
_VIEW = 2 * _REACH + 1
_EXIT_FEATURES = 6
NUM_FEATURES = OBSERVATION_SIZE + _VIEW * _VIEW * (CHANNELS + 1) + _EXIT_FEATURES


@final
class PlayerCentredMLP(AbstractActorCritic):
    """An MLP that sees the board as it is, and once more from where the player stands.

    In the flat observation the player is two numbers and everything else is tied to cells, so "an
    enemy to my left" is a different pattern on each of the 36 cells, and a plain MLP has to learn
    each of them. Here the cells around the player and the way to the exit are features as well.
    """

    mlp: MLPActorCritic

    def __init__(self, hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]):
        self.mlp = MLPActorCritic(
            NUM_FEATURES, NUM_ACTIONS, hidden_dim, num_layers, True, 10.0, key=key
        )

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return {"hidden_dim": self.mlp.hidden_dim, "num_layers": self.mlp.num_layers}

    def __call__(
        self, observation: Float[Array, " observation"], action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        return self.mlp(features(observation), action_mask)


def features(observation: Float[Array, " observation"]) -> Float[Array, " features"]:
    """The observation, the cells around the player, and where the exit lies from there.

    A cell of the view has one channel more than on the board: whether it is on the board.
    """
    grid = observation[PLAYER_FEATURES + NUM_PROGRAMS :].reshape(SIZE, SIZE, CHANNELS)
    row, col = (jnp.round(x * (SIZE - 1)).astype(jnp.int32) for x in observation[:2])
    on_board = jnp.ones((SIZE, SIZE, 1))
    padded = jnp.pad(
        jnp.concatenate([grid, on_board], axis=-1), ((_REACH, _REACH),) * 2 + ((0, 0),)
    )
    view = lax.dynamic_slice(padded, (row, col, 0), (_VIEW, _VIEW, CHANNELS + 1))

    exit = grid[:, :, exit_channel()]
    index = jnp.arange(SIZE)
    rows = jnp.sum(exit * index[:, None]) - row
    cols = jnp.sum(exit * index[None, :]) - col
    way = (rows > 0, rows < 0, cols > 0, cols < 0, rows / (SIZE - 1), cols / (SIZE - 1))
    way = jnp.stack([jnp.asarray(x).astype(jnp.float32) for x in way])
    return jnp.concatenate([observation, view.reshape(-1), way])
