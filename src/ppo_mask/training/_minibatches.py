"""Minibatches: the rows of a rollout from which each gradient step learns.

A row is one step of one environment; for a recurrent model, all steps of one environment.

Environments form groups, and a minibatch has equally many rows of every group, sampled without
replacement. Groups are as small as possible, mostly single environments. Each device has whole
groups, so a device's share of a minibatch needs no data from other devices, and the number of
devices does not change the minibatches.
"""

import itertools
import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from ppo_mask.devices.platforms import platform_of
from ppo_mask.devices.sharding import shard_over_envs
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._programs import random_bits
from ppo_mask.networks import Model
from ppo_mask.networks._model import is_recurrent
from ppo_mask.training._algorithm import check_split
from ppo_mask.training._rules import check_divides

_FLOATS_IN_CACHE, _FEWEST_ROWS = 2**18, 1024
"""A megabyte, about the cache of one core of a server or a laptop; fewer rows are slow anyway."""


def rows_per_env(model: Model, num_steps: int) -> int:
    """Counts the rows of each environment in a rollout.

    This is the number of steps; for a recurrent network, which learns through time, it is 1.
    """
    return 1 if is_recurrent(model) else num_steps


def check_minibatches(
    model: Model | None,
    num_envs: int,
    num_steps: int,
    num_minibatches: int,
    parts: int = 1,
    num_devices: int = 1,
) -> None:
    """Checks that each device can have an equal share of the environments and of every minibatch.

    Args:
        model: the model to train; None for any that is not recurrent.
        num_envs: number of environments.
        num_steps: steps of each environment in a rollout.
        num_minibatches: minibatches of a rollout.
        parts: parts of a minibatch (gradient accumulation).
        num_devices: number of devices.

    Raises:
        ValueError: shares would not be equal, or minibatches would not have equally many rows (of a
            recurrent model, environments). The message names the number that does not divide.
    """
    check_split(num_envs, num_devices)
    units = num_steps if model is None else rows_per_env(model, num_steps)
    batch = f"the batch of {num_envs} environments x {num_steps} steps"
    if model is not None and is_recurrent(model):
        batch = "the environments, whose whole rollouts a recurrent network learns from,"
    check_divides("num_minibatches", num_minibatches, batch, num_envs * units)
    groups = _num_groups(num_envs, units, num_minibatches)
    if groups % num_devices:
        most = math.gcd(groups, num_devices)
        raise ValueError(
            f"{num_minibatches} minibatches of {units} steps of {num_envs} environments can be "
            f"split over {most} devices at most, not {num_devices}; a number of minibatches that "
            "divides the steps has no such limit"
        )
    share = f" on each of {num_devices} devices" if num_devices > 1 else ""
    minibatch = f"the minibatch of {num_envs * units} / {num_minibatches}{share}"
    rows = num_envs * units // num_minibatches // num_devices
    check_divides("gradient_accumulation", parts, minibatch, rows)


def _num_groups(num_envs: int, units: int, num_minibatches: int) -> int:
    """Counts the groups of environments; ``units`` is the number of rows per environment."""
    return num_envs * math.gcd(units, num_minibatches) // num_minibatches


def shuffle_rows(
    key: Key[Array, ""],
    *,
    num_envs: int,
    units: int,
    num_minibatches: int = 1,
    epochs: int = 1,
    parts: int = 1,
    mesh: Mesh | None = None,
) -> Int[Array, "gradient_steps parts rows"]:
    """Shuffles rows into each gradient step's minibatch; every epoch uses each row once.

    Args:
        key: the random key of the order.
        num_envs: number of environments.
        units: rows of each environment, from :func:`rows_per_env`.
        num_minibatches: minibatches of an epoch; :func:`check_minibatches` has checked it.
        epochs: passes over the rows.
        parts: equal parts of a minibatch.
        mesh: the devices that the environments are split over, if there are several.

    Returns:
        Row numbers, ``unit · envs + env``, for each gradient step and each part. On a mesh the last
        axis is split over devices, and each device numbers its own environments from 0.
    """
    num_groups = _num_groups(num_envs, units, num_minibatches)
    size = num_envs // num_groups

    def shuffle(words: Array) -> Array:
        epochs, groups, _ = words.shape
        # Sorting random words gives a random order; one pair in 2^32 is equal.
        step, env = jnp.divmod(jnp.argsort(words, axis=-1).astype(jnp.int32), size)
        env += size * jnp.arange(groups, dtype=jnp.int32)[None, :, None]
        rows = (step * groups * size + env).reshape(epochs, groups, num_minibatches, -1)
        return rows.swapaxes(1, 2).reshape(epochs * num_minibatches, parts, -1)

    words = random_bits(key, epochs, num_groups, units * size)
    return shard_over_envs(mesh, shuffle, (1,), 2)(words)


def cache_sized_parts(parts: ArrayTree, weights: ArrayTree, mesh: Mesh | None = None) -> ArrayTree:
    """On a CPU, splits parts of a minibatch into smaller parts whose activations fit the cache.

    On an accelerator, which is fast with large arrays, the parts stay as they are.

    Args:
        parts: arrays with axes [parts, rows, …].
        weights: those of the model, whose longest axis tells how many numbers a row's layer has.
        mesh: the devices that the program is for; None for JAX's default device.

    Returns:
        The same rows in the same order, in more parts if the rows divide evenly into parts of a
        suitable size.
    """
    count, rows = jax.tree.leaves(parts)[0].shape[:2]
    widest = max(itertools.chain(*(x.shape for x in jax.tree.leaves(weights))), default=1)
    at_once = max(_FEWEST_ROWS, _FLOATS_IN_CACHE // widest)
    fewest, most = -(-rows // at_once), 2 * rows // at_once
    if platform_of(mesh) == "cpu":
        finer = next((n for n in range(fewest, most + 1) if rows % n == 0), 1)
        count, rows = count * finer, rows // finer
    return jax.tree.map(lambda x: x.reshape(count, rows, *x.shape[2:]), parts)


def gather_rows(
    rollout: ArrayTree, rows: Int[Array, "*parts rows"], mesh: Mesh | None = None
) -> ArrayTree:
    """Gathers the steps of a minibatch from a rollout.

    Args:
        rollout: a tree of arrays with axes [steps, envs, …].
        rows: row numbers from :func:`shuffle_rows`, for one part or several.
        mesh: the devices that the environments are split over, if there are several.

    Returns:
        The tree with the axes of ``rows`` in place of ``steps`` and ``envs``.
    """

    def gather(rollout: ArrayTree, rows: Array) -> ArrayTree:
        # Not reshape(-1, …), which fails for an empty array.
        return jax.tree.map(lambda x: x.reshape(len(x) * x.shape[1], *x.shape[2:])[rows], rollout)

    return shard_over_envs(mesh, gather, (1, rows.ndim - 1), rows.ndim - 1)(rollout, rows)
