"""Minibatches: the rows of a rollout from which each gradient step learns.

A row is one step of one environment; for a recurrent model, all steps of one environment.

Environments form groups, and a minibatch has equally many rows of every group, sampled without
replacement. Groups are as small as possible, mostly single environments. Each device has whole
groups, so a device's share of a minibatch needs no data from other devices, and the number of
devices does not change the minibatches.
"""

import math

import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from ppo_mask.devices.platforms import platform_of
from ppo_mask.devices.sharding import shard_over_envs
from ppo_mask.jax_tools import ArrayTree, random_bits
from ppo_mask.networks import AbstractActorCritic, is_recurrent
from ppo_mask.ppo._config import PPOConfig, check_divides

_ROWS_IN_CACHE = 1024
"""Rows of 256 floats, a megabyte in all: about the cache of one core of a server or a laptop."""


def check_devices(config: PPOConfig, model: AbstractActorCritic, count: int) -> None:
    """Checks that each device can have an equal share of the environments and of every minibatch.

    Args:
        config: hyperparameters.
        model: the model to train.
        count: number of devices.

    Raises:
        ValueError: shares would not be equal; or the model is recurrent, and the environments
            cannot be divided among minibatches. The message names the number that does not divide.
    """
    if config.num_envs % count:
        raise ValueError(
            f"{config.num_envs} environments cannot be split over {count} devices; "
            f"{max(config.num_envs // count, 1) * count} could"
        )
    units, minibatches = _units(config, model), config.scaling.num_minibatches
    groups = _num_groups(config, units)
    if groups % count:
        raise ValueError(
            f"{minibatches} minibatches of {units} steps of {config.num_envs} environments can be "
            f"split over {math.gcd(groups, count)} devices at most, not {count}; a number of "
            "minibatches that divides the steps has no such limit"
        )
    check_divides(
        "gradient_accumulation",
        config.gradient_accumulation,
        f"the rows of a minibatch on each of {count} devices",
        config.num_envs * units // minibatches // count,
    )


def can_split(config: PPOConfig, model: AbstractActorCritic, count: int) -> bool:
    """Whether ``count`` devices can have equal shares, as :func:`check_devices` requires."""
    try:
        check_devices(config, model, count)
    except ValueError:
        return False
    return True


def _units(config: PPOConfig, model: AbstractActorCritic) -> int:
    """Counts the rows of each environment in a rollout.

    This is the number of steps; for a recurrent network, which learns through time, it is 1.
    """
    if not is_recurrent(model):
        return config.num_steps
    parts = config.gradient_accumulation
    check_divides(
        "num_minibatches",
        config.scaling.num_minibatches * parts,
        "the environments, whose whole rollouts a recurrent network learns from,",
        config.num_envs,
        times="gradient accumulation" if parts > 1 else "",
    )
    return 1


def _num_groups(config: PPOConfig, units: int) -> int:
    """Counts the groups of environments; ``units`` is the number of rows per environment."""
    minibatches = config.scaling.num_minibatches
    return config.num_envs * math.gcd(units, minibatches) // minibatches


def shuffle_rows(
    config: PPOConfig, model: AbstractActorCritic, key: Key[Array, ""], mesh: Mesh | None = None
) -> Int[Array, "gradient_steps parts rows"]:
    """Shuffles rows into each gradient step's minibatch; every epoch uses each row once.

    Args:
        config: hyperparameters.
        model: the model to train.
        key: the random key of the order.
        mesh: the devices that the environments are split over, if there are several.

    Returns:
        Row numbers, ``step · envs + env``, for each gradient step and each of its
        ``gradient_accumulation`` parts. On a mesh the last axis is split over devices, and each
        device numbers its own environments from 0.

    Raises:
        ValueError: the model is recurrent, and the environments cannot be divided among
            minibatches.
    """
    units = _units(config, model)
    num_groups = _num_groups(config, units)
    size = config.num_envs // num_groups
    minibatches, update_epochs = config.scaling

    def shuffle(words: Array) -> Array:
        epochs, groups, _ = words.shape
        # Sorting random words gives a random order; one pair in 2^32 is equal.
        step, env = jnp.divmod(jnp.argsort(words, axis=-1).astype(jnp.int32), size)
        env += size * jnp.arange(groups, dtype=jnp.int32)[None, :, None]
        rows = (step * groups * size + env).reshape(epochs, groups, minibatches, -1)
        return rows.swapaxes(1, 2).reshape(config.gradient_steps, config.gradient_accumulation, -1)

    words = random_bits(key, update_epochs, num_groups, units * size)
    return shard_over_envs(mesh, shuffle, (1,), 2)(words)


def cache_sized_parts(parts: ArrayTree, mesh: Mesh | None = None) -> ArrayTree:
    """On a CPU, splits parts of a minibatch into smaller parts whose activations fit the cache.

    On an accelerator, which is fast with large arrays, the parts stay as they are.

    Args:
        parts: arrays with axes [parts, rows, …].
        mesh: the devices that the program is for; None for JAX's default device.

    Returns:
        The same rows in the same order, in more parts if the rows divide evenly into parts of a
        suitable size.
    """
    count, rows = jax.tree.leaves(parts)[0].shape[:2]
    fewest, most = -(-rows // _ROWS_IN_CACHE), 2 * rows // _ROWS_IN_CACHE
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
