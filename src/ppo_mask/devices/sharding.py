"""Environments split over devices; everything else is replicated.

This is data parallelism by JAX's sharding: one compiled program on a one-dimensional mesh of
devices. Each device acts in its own environments and gathers its own rows of every minibatch; a
gradient step takes the mean of the devices' gradients. The number of devices changes neither the
random numbers of an environment nor the minibatches that contain its steps. So the result is the
same for any number of devices, except for float rounding.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import multihost_utils
from jax.flatten_util import ravel_pytree
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from ppo_mask.errors import FieldError
from ppo_mask.jax_tools._trees import widen_floats

ENVS = "envs"
"""The name of the mesh's axis."""


_AXIS = "ppo_mask.axis_of_envs"


def per_env(axis: int = 0, **more: Any) -> Any:
    """Declares a field of a module whose arrays have an axis of environments.

    The trainer splits these arrays over the devices; all other arrays are replicated.

    Args:
        axis: the axis of environments in each array of the field.
        more: other arguments of ``equinox.field``.
    """
    return eqx.field(metadata={_AXIS: axis}, **more)


def env_axes(tree: Any, axis: int | None = None) -> Any:
    """Finds which axis of each leaf is that of the environments.

    Args:
        tree: modules with fields from :func:`per_env`, in any tree.
        axis: the axis in leaves that no module says anything about; None if they have no such axis.

    Returns:
        The tree with an axis, or None, in place of each leaf.
    """
    children, structure = jax.tree_util.tree_flatten_with_path(
        tree, is_leaf=lambda x: x is not tree
    )
    if len(children) == 1 and children[0][1] is tree:
        return axis
    of_fields: dict[str, int | None] = {}
    if isinstance(tree, eqx.Module):
        of_fields = {x.name: x.metadata.get(_AXIS, axis) for x in dataclasses.fields(tree)}
    axes = [env_axes(x, of_fields.get(getattr(path[0], "name", ""), axis)) for path, x in children]
    return structure.unflatten(axes)


def make_mesh(num_devices: int | None = None) -> Mesh | None:
    """Makes a mesh of devices.

    Args:
        num_devices: the number of devices to take from the beginning of ``jax.devices()``; None for
            all devices, including the devices of other processes.

    Returns:
        The mesh; None for a single device, which needs no mesh.

    Raises:
        FieldError: JAX has fewer devices than ``num_devices``.
    """
    devices = jax.devices()
    count = len(devices) if num_devices is None else num_devices
    if not 1 <= count <= len(devices):
        raise FieldError("num_devices", f"must be from 1 to {len(devices)} here, got {count}")
    return None if count == 1 else mesh_of(devices[:count])


def mesh_of(devices: Sequence[Any]) -> Mesh:
    """Makes a mesh of given devices.

    With a mesh of one device, programs are the same as without a mesh, and run on that device.

    Args:
        devices: the devices in the order of the mesh.
    """
    return Mesh(np.array(devices), (ENVS,), axis_types=(AxisType.Auto,))


def shard_over_envs(
    mesh: Mesh | None, function: Callable[..., Any], in_axes: Any, out_axes: Any
) -> Callable[..., Any]:
    """Makes each device run a function on its own environments.

    Args:
        mesh: the devices; None leaves the function as it is.
        function: maps any trees to trees of arrays, and closes over no traced value.
        in_axes: for each argument, the axis of environments, which is split over the devices; None
            for an argument that is replicated.
        out_axes: the axis of environments in the result, or in each part of the result; None for
            a replicated part.

    Returns:
        A function that takes and returns whole arrays.
    """
    if mesh is None or mesh.size == 1:
        return function

    in_specs, out_specs = (
        jax.tree.map(_spec, axes, is_leaf=lambda axis: axis is None) for axes in (in_axes, out_axes)
    )

    def on_devices(*given: Any) -> Any:
        arrays, static = eqx.partition(given, eqx.is_array)
        # check_vma would reject our loops, which are written as if there were a single device.
        return jax.shard_map(
            lambda *arrays: function(*eqx.combine(arrays, static)),
            mesh=mesh,
            in_specs=in_specs,
            out_specs=out_specs,
            check_vma=False,
        )(*arrays)

    return on_devices


def mean_over_devices(mesh: Mesh | None, tree: Any) -> Any:
    """Averages a tree of arrays over the devices, inside of :func:`shard_over_envs`.

    A single collective averages all arrays. With one collective for each array, a CPU with more
    devices than cores can deadlock: two waiting collectives take up every thread.

    Args:
        mesh: the devices; None leaves the tree as it is.
        tree: this device's tree of float arrays.
    """
    if mesh is None or mesh.size == 1:
        return tree
    numbers, apart = ravel_pytree(tree)
    return apart(jax.lax.pmean(widen_floats(numbers), ENVS).astype(numbers.dtype))


def sharding(mesh: Mesh, axis: int | None) -> NamedSharding:
    """Returns the sharding of an array, given its axis of environments.

    With None, every device has a copy.
    """
    return NamedSharding(mesh, _spec(axis))


def _spec(axis: int | None) -> PartitionSpec:
    return PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, ENVS)


def device_put(tree: Any, shardings: Any) -> Any:
    """Distributes the arrays of a tree over devices, as ``jax.device_put`` does.

    Also works if several processes share the mesh; each process passes the same whole tree.

    Args:
        tree: any tree; leaves that are not arrays stay as they are.
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


def to_host(leaf: Any) -> np.ndarray:
    """Copies an array to NumPy, even if parts of the array are on other processes' devices.

    All processes must take part.
    """
    if not isinstance(leaf, Array) or leaf.is_fully_addressable or leaf.is_fully_replicated:
        return np.asarray(leaf)
    return np.asarray(multihost_utils.process_allgather(leaf, tiled=True))


def addressable(tree: Any) -> Any:
    """Converts replicated arrays to single-device arrays, which are this process's copies."""
    return jax.tree.map(lambda x: x.addressable_data(0) if isinstance(x, Array) else x, tree)
