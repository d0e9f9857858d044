"""Environments split over devices; all else is the same on each of them.

Data parallelism by JAX's own sharding: one compiled program on a one-dimensional mesh of devices.
Each device acts in its own environments and gathers its own rows of every minibatch. What is
learned is one gradient over all of them, the mean of theirs. Which random numbers
an environment gets, and which of its steps are in which minibatch, does not depend on how many
devices there are; so nor does what comes out, but for float rounding.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

ENVS = "envs"
"""The name of the mesh's axis."""


def make_mesh(num_devices: int | None = None) -> Mesh | None:
    """A mesh of devices; None for a single one, which needs none.

    Args:
        num_devices: how many, the first of all; None for all of them, those of other processes too.

    Raises:
        ValueError: there are not so many.
    """
    devices = jax.devices()
    count = len(devices) if num_devices is None else num_devices
    if not 1 <= count <= len(devices):
        raise ValueError(f"num_devices must be from 1 to {len(devices)} here, got {count}")
    if count == 1:
        return None
    return Mesh(np.array(devices[:count]), (ENVS,), axis_types=(AxisType.Auto,))


def shard_over_envs(
    mesh: Mesh | None, function: Callable[..., Any], in_axes: Any, out_axes: Any
) -> Callable[..., Any]:
    """The function, run by each device on its own part; as it is if there is no mesh.

    Args:
        mesh: of the devices.
        function: from trees of arrays to trees of arrays. It closes over no traced value.
        in_axes: for each argument the axis along which it is split, None for one that all have
            whole.
        out_axes: likewise, of the result or of each part of it.
    """
    if mesh is None:
        return function

    def spec(axis: int | None) -> PartitionSpec:
        return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, ENVS)

    in_specs, out_specs = (
        jax.tree.map(spec, axes, is_leaf=lambda axis: axis is None) for axes in (in_axes, out_axes)
    )
    # Without check_vma: loops over what one device has are written as if there were only one.
    return jax.shard_map(
        function, mesh=mesh, in_specs=in_specs, out_specs=out_specs, check_vma=False
    )


def mean_over_devices(mesh: Mesh | None, tree: Any) -> Any:
    """The mean of what the devices have, inside of :func:`shard_over_envs`; else the tree itself.

    One sum of all arrays' numbers. With one for each array, two of them may wait at once, and on a
    CPU with more devices than cores all threads come to wait for one that has no thread to run on.
    """
    if mesh is None:
        return tree
    numbers, apart = ravel_pytree(tree)
    return apart(jax.lax.pmean(numbers, ENVS))


def env_sharding(mesh: Mesh) -> NamedSharding:
    """How an array lies whose first axis are the environments."""
    return NamedSharding(mesh, PartitionSpec(ENVS))


def replicated_sharding(mesh: Mesh) -> NamedSharding:
    """How an array lies that every device has."""
    return NamedSharding(mesh, PartitionSpec())


def device_put(tree: Any, shardings: Any) -> Any:
    """The tree's arrays, laid so; all else as it is.

    Where several processes share the mesh, each has the whole tree, and it is the same in all.

    Args:
        tree: any.
        shardings: the same tree with a sharding in place of each array.
    """

    def one(x: Any, sharding: NamedSharding) -> Array:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = one(jax.random.key_data(x), sharding)
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        content = np.asarray(x)
        return jax.make_array_from_callback(x.shape, sharding, lambda index: content[index])

    arrays, rest = eqx.partition(tree, eqx.is_array)
    return eqx.combine(jax.tree.map(one, arrays, shardings), rest)


def replicate(tree: Any, mesh: Mesh | None) -> Any:
    """The tree's arrays on every device of the mesh; as it is if there is none."""
    if mesh is None:
        return tree
    return device_put(
        tree, jax.tree.map(lambda _: replicated_sharding(mesh), eqx.filter(tree, eqx.is_array))
    )


def to_host(leaf: Any) -> np.ndarray:
    """An array's content, also where parts of it are on other processes' devices.

    All processes must ask for it.
    """
    if not isinstance(leaf, Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def addressable(tree: Any) -> Any:
    """The tree with its arrays on one device of this process. Every device has them whole."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, Array) else x, tree)
