"""An actor-critic with one set of weights for all cells of the board.

An MLP's first layer has separate weights for each of the 36 cells, so an MLP has to learn 36 times
what an enemy looks like. This network learns each such pattern once, as all cells share the weights
of its first layers. The first layer turns each cell's channels into a vector, the cell's *code*.
The second layer combines this code with the neighbors' codes, as a convolution does. Later layers
have separate weights for each cell, by its place relative to the player.

The later layers get 576 numbers from the codes, and only 74 about the player, its lines of fire and
its ways to the exit. Each of the two groups has its own layer and layer norm, so that neither group
dominates.
"""

from typing import NamedTuple, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int8, Key, UInt8

from hackmatrix.actions import NUM_ACTIONS
from hackmatrix.networks.features import (
    NUM_AROUND_PLAYER,
    PARTS,
    features,
    in_parts,
    place_of,
    roll,
)
from hackmatrix.observation import CHANNELS, Observation, compress
from hackmatrix.rules.planes import NUM_CELLS, SIZE
from ppo_mask.jax_tools import number_settings
from ppo_mask.networks import AbstractActorCritic, AbstractReader, MaskedCategorical, Model
from ppo_mask.networks.layers import activate, affine, check_sizes, linear

_POLICY_GAIN = 10.0


class BoardView(NamedTuple):
    """The input of a :class:`BoardNetwork`.

    Attributes:
        player: see :meth:`hackmatrix.networks.features.Features.around_player`.
        cells: all channels of the cells as bytes, in units of 1/36; the player's cell comes first,
            as in :attr:`hackmatrix.networks.features.Features.cells`.
        place: the player's row and column.
    """

    player: Float[Array, " around"]
    cells: Int8[Array, "cells channels"]
    place: UInt8[Array, "2"]


@number_settings()
def view(observation: Observation) -> BoardView:
    """Computes the network's input from one observation."""
    compact = compress(observation)
    place = jnp.stack(place_of(compact)).astype(jnp.uint8)
    return BoardView(features(compact).around_player(), in_parts(roll(compact)), place)


def neighbor_sums(
    codes: Float[Array, "cells code"], place: UInt8[Array, "2"]
) -> Float[Array, "cells code"]:
    """Sums the codes of each cell's neighbors on the board.

    Args:
        codes: the cells' codes, the player's cell first.
        place: the player's row and column, which locate the edges of the board.
    """
    rows, cols = (jnp.arange(SIZE) + place[:, None].astype(jnp.int32)) % SIZE
    above = (rows != SIZE - 1).astype(codes.dtype)[:, None, None]
    right = (cols != SIZE - 1).astype(codes.dtype)[None, :, None]
    board = codes.reshape(SIZE, SIZE, -1)
    sums = (
        jnp.roll(board, -1, 0) * above
        + jnp.roll(board * above, 1, 0)
        + jnp.roll(board, -1, 1) * right
        + jnp.roll(board * right, 1, 1)
    )
    return sums.reshape(codes.shape)


class _Codes(eqx.Module):
    """Computes the codes of the cells, with weights that all cells share."""

    own: eqx.nn.Linear
    again: eqx.nn.Linear
    neighbors: eqx.nn.Linear

    def __init__(self, size: int, key: Key[Array, ""]):
        keys = jax.random.split(key, 3)
        self.own = linear(CHANNELS, size, 2**0.5, keys[0])
        self.again = linear(size, size, 1.0, keys[1])
        self.neighbors = linear(size, size, 1.0, keys[2])

    def __call__(
        self, cells: Float[Array, "cells channels"], place: UInt8[Array, "2"]
    ) -> Float[Array, "cells code"]:
        own = jnp.tanh(affine(self.own, cells))
        around = affine(self.neighbors, neighbor_sums(own, place))
        return jnp.tanh(affine(self.again, own) + around)


class _Tower(eqx.Module):
    """Computes the logits or the value from the cells' codes and ``BoardView.player``."""

    board: eqx.nn.Linear
    player: eqx.nn.Linear
    hidden: tuple[eqx.nn.Linear, ...]
    head: eqx.nn.Linear

    def __init__(
        self, codes: int, width: int, layers: int, n_out: int, gain: float, key: Key[Array, ""]
    ):
        keys = jax.random.split(key, layers + 2)
        beside = -(-width // 2)
        sizes = [width + beside, *[width] * (layers - 1)]
        self.board = linear(codes, width, 2**0.5, keys[0])
        self.player = linear(NUM_AROUND_PLAYER, beside, 2**0.5, keys[1])
        self.hidden = tuple(
            linear(n, width, 2**0.5, k) for n, k in zip(sizes[:-1], keys[2:-1], strict=True)
        )
        self.head = linear(sizes[-1], n_out, gain, keys[-1])

    def __call__(
        self, codes: Float[Array, " codes"], player: Float[Array, " around"], gain: float
    ) -> Float[Array, " n_out"]:
        parts = activate(self.board, codes, True), activate(self.player, player, True)
        x = jnp.concatenate(parts)
        for layer in self.hidden:
            x = activate(layer, x, True)
        return affine(self.head, x, gain)


@final
class BoardNetwork(AbstractActorCritic):
    """A network on a :class:`BoardView`.

    Policy and value share only the layers that compute the cells' codes. Layers are initialized
    like those of :class:`ppo_mask.networks.MLPActorCritic` with layer norm and a policy gain of 10.

    Attributes:
        hidden_dim: width of the hidden layers. The first one after the codes has
            ``hidden_dim / 2`` more units, which read ``BoardView.player``.
        num_layers: hidden layers after those that compute the codes.
        code_size: size of a cell's code.
    """

    hidden_dim: int = eqx.field(static=True)
    num_layers: int = eqx.field(static=True)
    code_size: int = eqx.field(static=True)
    codes: _Codes
    actor: _Tower
    critic: _Tower

    def __init__(
        self,
        hidden_dim: int = 256,
        num_layers: int = 2,
        code_size: int = 16,
        *,
        key: Key[Array, ""],
    ):
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.code_size = code_size
        check_sizes(self, "hidden_dim", "num_layers", "code_size")
        codes_key, actor_key, critic_key = jax.random.split(key, 3)
        sizes = NUM_CELLS * code_size, hidden_dim, num_layers
        self.codes = _Codes(code_size, codes_key)
        self.actor = _Tower(*sizes, NUM_ACTIONS, 0.01, actor_key)
        self.critic = _Tower(*sizes, 1, 1.0, critic_key)

    @number_settings()
    def __call__(
        self, observation: BoardView, action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        player, cells, place = observation
        codes = self.codes(cells.astype(jnp.float32) / PARTS, place).reshape(-1)
        logits = self.actor(codes, player, _POLICY_GAIN)
        value = self.critic(codes, player, 1.0)
        return MaskedCategorical(logits, action_mask), value[0]


@final
class BoardReader(AbstractReader):
    """Reads a :class:`BoardView`."""

    def features(self, observation: Observation) -> BoardView:
        """See :class:`ppo_mask.networks.AbstractReader`."""
        return view(observation)


def board_network(hidden_dim: int = 256, num_layers: int = 2, *, key: Key[Array, ""]) -> Model:
    """Makes a model with one set of weights for all cells of the board.

    Args:
        hidden_dim: width of the hidden layers.
        num_layers: hidden layers after those that compute the cells' codes.
        key: initializes the weights.
    """
    return Model(BoardReader(), BoardNetwork(hidden_dim, num_layers, key=key))
