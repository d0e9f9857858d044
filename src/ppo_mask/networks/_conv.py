"""A network for images and boards: convolutions, a hidden layer, and two heads."""

import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.envs.actions import NumActions, mask_length
from ppo_mask.jax_tools import ArrayTree, flat_numbers
from ppo_mask.networks._actor_critic import AbstractActorCritic, static_fields
from ppo_mask.networks._distribution import AbstractMaskedDistribution, masked_distribution
from ppo_mask.networks.layers import (
    affine,
    check_sizes,
    linear,
    observation_shapes,
    of_python,
    size_of,
)

_LARGEST = 12  # Cells per side; larger images are halved.
_SMALLEST = 3  # Cells per side; the size of a kernel.
_MOST_PLANES_FIRST, _SMALLEST_IMAGE = 4, 16  # Color channels or stacked frames; cells per side.


@final
class ConvActorCritic(AbstractActorCritic):
    """Convolutions over one image or board of the observation, shared by policy and value.

    Kernels are 3 × 3. Convolutions of stride 2 halve the image until no side is longer than 12
    cells; there are at least two convolutions. The last convolution's output is concatenated with
    all other arrays of the observation; one hidden layer and two heads follow. Weights start
    orthogonal, as in :class:`~ppo_mask.networks.MLPActorCritic`.

    Args:
        key: the random key of the initial weights.

    Attributes:
        grid_shape: rows, columns and channels. The observation's first array of this shape is the
            grid; uint8 values are divided by 255. If the first axis has at most 4 entries and each
            other axis at least 16, channels come first, as in stacked frames.
        other_size: number of entries in the rest of the observation.
        num_actions: number of logits of the policy; if MultiDiscrete, a number for each part.
        channels: number of channels of each convolution.
        hidden_dim: width of the hidden layer.
        convolutions: the convolutions, in order.
        hidden: the hidden layer.
        actor: the policy's head.
        critic: the value's head.

    Raises:
        ValueError: a size is below 1, or a side of the grid is below 3.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> model = pm.ConvActorCritic((8, 8, 2), 5, num_actions=4, key=jax.random.key(0))
        >>> observation = {"board": jnp.zeros((8, 8, 2), bool), "hand": jnp.ones(5)}
        >>> distribution, value = model(observation, jnp.arange(4) < 2)
        >>> print(distribution.probs.round(1))
        [0.5 0.5 0.  0. ]
    """

    grid_shape: tuple[int, int, int] = eqx.field(static=True)
    other_size: int = eqx.field(static=True)
    num_actions: NumActions = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    convolutions: tuple[eqx.nn.Conv2d, ...]
    hidden: eqx.nn.Linear
    actor: eqx.nn.Linear
    critic: eqx.nn.Linear

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
        self.grid_shape = grid_shape
        rows, columns, planes = _channels_last(grid_shape)
        self.other_size, self.num_actions = other_size, num_actions
        self.channels, self.hidden_dim = channels, hidden_dim
        check_sizes(self, "num_actions", "channels", "hidden_dim")
        if min(rows, columns) < _SMALLEST or planes < 1:
            raise ValueError(f"a grid has at least 3 x 3 cells and 1 channel, got {grid_shape}")
        strides: list[int] = []
        while max(rows, columns) > _LARGEST:
            rows, columns = -(-rows // 2), -(-columns // 2)
            strides.append(2)
        strides += [1] * (2 - len(strides))
        first, *keys = jax.random.split(key, len(strides) + 3)
        sizes = [planes, *[channels] * len(strides)]
        self.convolutions = tuple(map(_convolution, sizes[:-1], sizes[1:], strides, keys))
        self.hidden = linear(rows * columns * channels + other_size, hidden_dim, 2**0.5, first)
        self.actor = linear(hidden_dim, mask_length(num_actions), 0.01, keys[-2])
        self.critic = linear(hidden_dim, 1, 1.0, keys[-1])

    @classmethod
    def for_env(cls, env: Any, *, key: Key[Array, ""], **hyperparameters: Any) -> "ConvActorCritic":
        """Makes a network that fits an environment.

        Args:
            env: an :class:`~ppo_mask.envs.AbstractEnv` with a grid in its observation: an array of
                rows, columns and channels, at least 3 × 3 cells.
            key: the random key of the initial weights.
            hyperparameters: other arguments of the constructor, such as ``hidden_dim``.

        Raises:
            ValueError: the observation has no grid, or no numbers at all.
        """
        observation = observation_shapes(env)
        shape = find_grid(observation)
        if shape is None:
            raise ValueError("the observation has no array of rows, columns and channels")
        others = size_of(observation) - math.prod(shape)
        return cls(shape, others, env.num_actions, key=key, **of_python(**hyperparameters))

    @property
    def hyperparameters(self) -> dict[str, Any]:
        return static_fields(self)

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        leaves = jax.tree.leaves(observation)
        place = next((i for i, x in enumerate(leaves) if x.shape == self.grid_shape), None)
        others = flat_numbers([x for i, x in enumerate(leaves) if i != place])
        if place is None or others.size != self.other_size:
            raise ValueError(
                f"the network takes a grid {list(self.grid_shape)} and {self.other_size} other "
                f"numbers, got {[list(x.shape) for x in leaves]}"
            )
        grid = leaves[place]
        x = grid.astype(jnp.float32) / (255 if grid.dtype == jnp.uint8 else 1)
        x = x.astype(self.convolutions[0].weight.dtype)
        if _channels_last(self.grid_shape) == self.grid_shape:
            x = jnp.moveaxis(x, -1, 0)
        for convolution in self.convolutions:
            x = jax.nn.relu(convolution(x))
        x = jnp.concatenate([x.reshape(-1), others.astype(x.dtype)])
        x = jnp.tanh(affine(self.hidden, x))
        value = affine(self.critic, x)[0]
        return masked_distribution(affine(self.actor, x), action_mask, self.num_actions), value


def find_grid(observation: Any) -> tuple[int, int, int] | None:
    """Returns the shape of an observation's first grid of rows, columns and channels, or None.

    In an image like ``[4, 84, 84]``, channels come first.

    Args:
        observation: a tree of arrays, or of their shapes.
    """
    shapes = [leaf.shape for leaf in jax.tree.leaves(observation) if len(leaf.shape) == 3]
    sides = ((shape, _channels_last(shape)) for shape in shapes)
    return next((shape for shape, (*x, n) in sides if min(x) >= _SMALLEST and n >= 1), None)


def _channels_last(shape: tuple[int, int, int]) -> tuple[int, int, int]:
    first, second, third = shape
    if first <= _MOST_PLANES_FIRST and min(second, third) >= _SMALLEST_IMAGE:
        return second, third, first
    return shape


def _convolution(n_in: int, n_out: int, stride: int, key: Key[Array, ""]) -> eqx.nn.Conv2d:
    # "SAME" padding: stride 1 keeps the size, and stride 2 halves it.
    layer = eqx.filter_eval_shape(
        lambda: eqx.nn.Conv2d(n_in, n_out, 3, stride, "SAME", key=jax.random.key(0))
    )
    weight = linear(n_in * 9, n_out, 2**0.5, key).weight.reshape(n_out, n_in, 3, 3)
    bias = jnp.zeros((n_out, 1, 1), jnp.float32)
    return eqx.tree_at(lambda x: (x.weight, x.bias), layer, (weight, bias))
