"""A network for images and boards: convolutions, a hidden layer, and two heads."""

from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution, masked_distribution
from ppo_mask.networks._reader import SMALLEST_SIDE
from ppo_mask.networks.layers import affine, check_sizes, linear

_LARGEST = 12  # Cells per side; larger images are halved.


@final
class ConvActorCritic(AbstractActorCritic):
    """Convolutions over one image or board, shared by policy and value.

    The input is a pair: the grid, and a vector of the rest of the observation.
    :func:`ppo_mask.network_for` makes a model whose reader finds them.

    Kernels are 3 × 3. Convolutions of stride 2 halve the image until no side is longer than 12
    cells; there are at least two convolutions. The last convolution's output is concatenated with
    the rest of the observation; one hidden layer and two heads follow. Weights start
    orthogonal, as in :class:`~ppo_mask.networks.MLPActorCritic`.

    Where there are as many actions as cells, or a multiple of that, or one more (to pass), an
    action's logit is also computed from the features of its cell, with the same weights for all
    cells, as in AlphaZero (Silver et al. 2018, doi:10.1126/science.aar6404): what is learned for
    one cell holds for all. Actions count the cells row by row, those of a cell in succession.

    Args:
        key: the random key of the initial weights.

    Attributes:
        grid_shape: rows, columns and channels.
        other_size: number of entries in the rest of the observation.
        num_actions: number of logits of the policy; if MultiDiscrete, a number for each part.
        channels: number of channels of each convolution.
        hidden_dim: width of the hidden layer.
        convolutions: the convolutions, in order: each is a layer that is applied to every cell, and
            whose input is the cell's 3 × 3 neighborhood (row, column, channel).
        hidden: the hidden layer.
        actor: the policy's head.
        critic: the value's head.
        cells: the policy's head for the actions of a cell; None if actions are not of cells.

    Raises:
        ValueError: a size is below 1, or a side of the grid is below 3.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> network = pm.ConvActorCritic((8, 8, 2), 5, num_actions=4, key=jax.random.key(0))
        >>> board, hand = jnp.zeros((8, 8, 2)), jnp.ones(5)
        >>> distribution, value = network((board, hand), jnp.arange(4) < 2)
        >>> print(distribution.probs.round(1))
        [0.5 0.5 0.  0. ]
    """

    grid_shape: tuple[int, int, int] = eqx.field(static=True)
    other_size: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    convolutions: tuple[eqx.nn.Linear, ...]
    hidden: eqx.nn.Linear
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear
    cells: eqx.nn.Linear | None

    def __init__(
        self,
        grid_shape: tuple[int, int, int],
        other_size: int,
        num_actions: NumActions,
        channels: int = 32,
        hidden_dim: int = 256,
        *,
        key: Key[Array, ""],
    ):
        rows, columns, planes = self.grid_shape = grid_shape
        self.other_size, self.num_actions = other_size, num_actions
        self.channels, self.hidden_dim = channels, hidden_dim
        check_sizes(self, "num_actions", "channels", "hidden_dim")
        if min(rows, columns) < SMALLEST_SIDE or planes < 1:
            raise ValueError(f"a grid has at least 3 x 3 cells and 1 channel, got {grid_shape}")
        count = 0
        while max(rows, columns) > _LARGEST:
            rows, columns = -(-rows // 2), -(-columns // 2)
            count += 1
        sizes = [planes] + [channels] * (max(count, 2) - 1)
        first, *keys = jax.random.split(key, len(sizes) + 4)
        self.convolutions = tuple(
            linear(9 * size, channels, 2**0.5, key) for size, key in zip(sizes, keys, strict=False)
        )
        self.hidden = linear(rows * columns * channels + other_size, hidden_dim, 2**0.5, first)
        actions = Actions.of(num_actions)
        self.actor = linear(hidden_dim, actions.length, 0.01, keys[-3])
        self.critic = linear(hidden_dim, 1, 1.0, keys[-2])
        each, more = divmod(actions.length, rows * columns)
        is_of_cells = count == 0 and each > 0 and more <= 1 and not actions.has_parts
        self.cells = linear(channels, each, 0.01, keys[-1]) if is_of_cells else None

    def __call__(
        self,
        observation: tuple[Float[Array, "rows columns channels"], Float[Array, " rest"]],
        action_mask: Bool[Array, " actions"],
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        x, others = observation
        if x.shape != self.grid_shape or others.size != self.other_size:
            raise ValueError(
                f"the network takes a grid {list(self.grid_shape)} and {self.other_size} other "
                f"numbers, got {list(x.shape)} and {others.size}"
            )
        x = x.astype(self.convolutions[0].weight.dtype)
        for convolution in self.convolutions:
            x = jax.nn.relu(affine(convolution, neighborhoods(x)))
        features = jnp.concatenate([x.reshape(-1), others.astype(x.dtype)])
        features = jnp.tanh(affine(self.hidden, features))
        logits, value = affine(self.actor, features), affine(self.critic, features)[0]
        if self.cells is not None:
            of_cells = affine(self.cells, x).reshape(-1)
            logits += jnp.pad(of_cells, (0, logits.size - of_cells.size))
        return masked_distribution(logits, action_mask, self.num_actions), value


def neighborhoods(
    x: Float[Array, "rows columns channels"],
) -> Float[Array, "new_rows new_columns 9*channels"]:
    """Concatenates the 3 × 3 cells around each cell; a large grid is halved (stride 2).

    Convolutions are matrix products here, because XLA's CPU code for the gradient of a convolution
    in a loop, such as that over minibatches, takes 9 times the time.
    """
    rows, columns, _ = x.shape
    stride = 2 if max(rows, columns) > _LARGEST else 1
    x = jnp.pad(x, ((1, 1), (1, 1), (0, 0)))
    shifted = [
        x[i : i + rows : stride, j : j + columns : stride] for i in range(3) for j in range(3)
    ]
    return jnp.concatenate(shifted, axis=-1)
