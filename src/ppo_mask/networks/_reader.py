"""Readers: what a network sees of an observation.

What numbers mean is decided here alone: which arrays are scaled, which one is a grid, and how all
are joined. It is decided when a model is made for an environment, and kept among the reader's
hyperparameters, so a saved policy reads observations as in its training.
"""

from typing import Any, TypeAlias, final

import equinox as eqx
import jax
import jax.numpy as jnp

from ppo_mask.envs import ArrayInfo
from ppo_mask.envs._env import declared_info
from ppo_mask.errors import ProtocolError, warn
from ppo_mask.jax_tools import ArrayTree, flat_numbers
from ppo_mask.jax_tools._trees import plain_dicts
from ppo_mask.networks._actor_critic import static_fields
from ppo_mask.networks.layers import observation_shapes

Bounds: TypeAlias = tuple[tuple[float, float] | None, ...]
"""For each array, the values that become 0 and 1, or None to leave it as it is; () for no array."""
Shape: TypeAlias = tuple[int, ...]

_SMALL = 10
"""Integers up to this are left as they are. Scaled from 0 and 8 to 0 and 1, navix's symbols took an
MLP about twice as many steps to learn from."""
_KINDS = 32
"""A board of integers has at most this many kinds of cells, each of which becomes a channel."""
SMALLEST_SIDE = 3
"""Cells per side of a grid; the size of a kernel."""


class AbstractReader(eqx.Module):
    """Turns observations into a network's inputs; it has no parameters to train.

    An observation passes three stages. :meth:`features` runs once for each step, and its result is
    what a rollout stores. :meth:`unpack` and :meth:`join` run for one minibatch at a time. Between
    the two, a normalized model standardizes the floats.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Board(pm.AbstractReader):
        ...     def features(self, observation):
        ...         return observation.astype(jnp.uint8)  # A byte for each cell in the rollout.
        ...     def unpack(self, features):
        ...         return features / 255
        >>> network = pm.MLPActorCritic(9, 4, hidden_dim=8, key=jax.random.key(0))
        >>> distribution, value = pm.Model(Board(), network)(jnp.arange(9), jnp.arange(4) == 2)
        >>> print(distribution.probs)
        [0. 0. 1. 0.]
    """

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The constructor's arguments, without a key; a saved policy stores them.

        By default, the static fields.
        """
        return static_fields(self)

    def features(self, observation: ArrayTree) -> ArrayTree:
        """Computes what a rollout stores of one observation; by default, all of it."""
        return observation

    def unpack(self, features: ArrayTree) -> ArrayTree:
        """Converts one observation's features to numbers; by default, leaves them as they are."""
        return features

    def join(self, numbers: ArrayTree) -> ArrayTree:
        """Arranges the numbers as the network takes them; by default, leaves them as they are."""
        return numbers


@final
class IdentityReader(AbstractReader):
    """Leaves observations as they are, for a network that reads them by itself."""


@final
class ArrayReader(AbstractReader):
    """Reads any observation of arrays: as one vector, or as a grid and a vector of the rest.

    A rollout stores the observation as it is, so a boolean stays a byte.

    Attributes:
        bounds: for each array of the observation, the two values that become 0 and 1, or None to
            leave the array as it is; empty to leave all.
        grid_shape: the shape of the grid: rows, columns and channels; with ``channels_first``,
            channels, rows and columns. The observation's first array of this shape is the grid.
            None for no grid.
        channels_first: whether the grid's first axis, not its last, has the channels.
        kinds: for a board of integers, whose shape is rows and columns, the lowest and the highest
            of them: each one becomes a channel. None for a grid that has channels.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> observation = {"age": jnp.int8(20), "seen": jnp.array([True, False])}
        >>> reader = pm.networks.ArrayReader(bounds=((0, 40), None))
        >>> print(reader.join(observation))
        [0.5 1.  0. ]
    """

    bounds: Bounds = eqx.field(static=True, default=())
    grid_shape: Shape | None = eqx.field(static=True, default=None)
    channels_first: bool = eqx.field(static=True, default=False)
    kinds: tuple[int, int] | None = eqx.field(static=True, default=None)

    @classmethod
    def for_env(
        cls, env: Any, *, grid: bool = False, channels_first: bool | None = None
    ) -> "ArrayReader":
        """Makes a reader for an environment's observations.

        Args:
            env: an :class:`~ppo_mask.envs.AbstractEnv`. Integers whose bounds it knows are scaled;
                bytes of a grid are scaled in any case.
            grid: whether to read the first image or board as a grid; if there is none, the first
                array of two axes whose integers are of at most 32 kinds, as the environment knows.
            channels_first: whether its first axis, not its last, has the channels; None for what
                the environment knows, or the first if it is the shortest.

        Raises:
            ValueError: the observation has no grid, or no numbers at all.
        """
        observation = observation_shapes(env)
        if not grid:
            return cls(bounds_of(env, observation))
        if (found := find_grid(env, observation, channels_first)) is None:
            if (board := _find_board(env, observation)) is not None:
                shape, kinds = board
                return cls(bounds_of(env, observation, shape), shape, kinds=kinds)
            raise ValueError(
                "the observation has no array of rows, columns and channels, and no board of "
                f"integers with known bounds and at most {_KINDS} kinds"
            )
        shape, known = found
        first = is_shortest_first(shape) if known is None else known
        if first and known is None:
            warn(
                f"the first axis of {list(shape)} is the shortest, and is taken for the channels; "
                "channels_first (--channels-first) says whether it is"
            )
        return cls(bounds_of(env, observation, shape), shape, first)

    @property
    def cells(self) -> Shape:
        """The grid's rows, columns and channels."""
        assert self.grid_shape is not None
        if self.kinds is not None:
            return (*self.grid_shape, self.kinds[1] - self.kinds[0] + 1)
        return channels_last(self.grid_shape, self.channels_first)

    def join(self, numbers: ArrayTree) -> ArrayTree:
        """Scales and joins the arrays of one observation.

        Returns:
            A vector; with a grid, the grid (rows, columns, channels) and a vector of the rest.

        Raises:
            ValueError: the observation does not have the arrays that the reader is for.
        """
        leaves = jax.tree.leaves(plain_dicts(numbers))
        if self.bounds and len(leaves) != len(self.bounds):
            raise ValueError(f"the network takes {len(self.bounds)} arrays, got {len(leaves)}")
        for i, each in enumerate(self.bounds):
            if each is not None:
                leaves[i] = (leaves[i].astype(jnp.float32) - each[0]) / (each[1] - each[0])
        if self.grid_shape is None:
            return flat_numbers(leaves)
        place = next((i for i, x in enumerate(leaves) if x.shape == self.grid_shape), None)
        if place is None:
            shapes = [list(x.shape) for x in leaves]
            raise ValueError(f"the network takes a grid {list(self.grid_shape)}, got {shapes}")
        grid = leaves.pop(place)
        if self.kinds is not None:
            return jax.nn.one_hot(grid - self.kinds[0], self.cells[2]), flat_numbers(leaves)
        grid = jnp.moveaxis(grid, 0, -1) if self.channels_first else grid
        grid = grid if jnp.issubdtype(grid.dtype, jnp.floating) else grid.astype(jnp.float32)
        return grid, flat_numbers(leaves)


def find_grid(
    env: Any, observation: Any, channels_first: bool | None = None
) -> tuple[Shape, bool | None] | None:
    """Finds the first image or board in an environment's observation.

    Args:
        env: the environment.
        observation: the shapes of its observation.
        channels_first: whether the grid's first axis, not its last, has the channels; None for what
            the environment knows.

    Returns:
        The grid's shape, and whether channels come first, if that is known; None without a grid.
    """
    for leaf, info in _arrays(env, observation):
        known = info.channels_first if channels_first is None else channels_first
        if len(leaf.shape) == 3:
            *sides, channels = channels_last(leaf.shape, known)
            if min(sides) >= SMALLEST_SIDE and channels:
                return leaf.shape, known
    return None


def _find_board(env: Any, observation: Any) -> tuple[Shape, tuple[int, int]] | None:
    """Finds the first board of integers, and the lowest and the highest of them."""
    for leaf, info in _arrays(env, observation):
        if len(leaf.shape) == 2 and jnp.issubdtype(leaf.dtype, jnp.integer) and info.bounds:
            low, high = (int(float(x)) for x in info.bounds)
            if min(leaf.shape) >= SMALLEST_SIDE and high - low < _KINDS:
                return leaf.shape, (low, high)
    return None


def bounds_of(env: Any, observation: Any, grid_shape: Shape | None = None) -> Bounds:
    """Finds the arrays to scale: integers over 10 whose bounds the environment knows.

    The bounds of a dtype's whole range say nothing, except for bytes; those of the grid are from 0
    to 255 unless the environment knows better. A board of integers is not scaled.
    """

    def bounds(leaf: jax.ShapeDtypeStruct, info: ArrayInfo) -> tuple[float, float] | None:
        if len(leaf.shape) == 2 and leaf.shape == grid_shape:
            return None
        is_byte = leaf.dtype == jnp.uint8
        known = info.bounds or ((0, 255) if is_byte and leaf.shape == grid_shape else None)
        if known is None or not jnp.issubdtype(leaf.dtype, jnp.integer):
            return None
        (low, high), whole = map(float, known), jnp.iinfo(leaf.dtype)
        is_known = is_byte or (whole.min < low and high < whole.max)
        is_large = low < high and max(-low, high) > _SMALL
        return (low, high) if is_known and is_large else None

    found = tuple(bounds(leaf, info) for leaf, info in _arrays(env, observation))
    return found if any(found) else ()


def is_shortest_first(shape: Shape) -> bool:
    """Whether a grid's first axis is shorter than the others, as an axis of channels mostly is."""
    return shape[0] < min(shape[1:])


def channels_last(shape: Shape, channels_first: bool | None) -> Shape:
    """Returns a grid's rows, columns and channels; None looks which axis is the shortest."""
    first = is_shortest_first(shape) if channels_first is None else channels_first
    return (shape[1], shape[2], shape[0]) if first else shape


def _arrays(env: Any, observation: Any) -> list[tuple[jax.ShapeDtypeStruct, ArrayInfo]]:
    declared = declared_info(env)
    try:
        infos = jax.tree.leaves(jax.tree.broadcast(declared, observation))
    except ValueError:
        raise ProtocolError(f"observation_info is {declared}, not like the observation") from None
    return list(zip(jax.tree.leaves(observation), infos, strict=True))
