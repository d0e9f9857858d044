"""A CPU's cores as devices, each of which plays its own environments.

XLA splits large operations over cores. Most operations of environments are small, or loops whose
turns wait for each other. With a device for each core, a program runs on all cores at once
(docs/running_elsewhere.md has measurements).
"""

import os
from collections.abc import Callable

import jax

ENVS_PER_CORE = 128
"""Fewer do not make up for the cost of one more device (measured)."""

_MOST = 16
_OPTION, _XLA_FLAG = "jax_num_cpu_devices", "xla_force_host_platform_device_count"


def make_devices() -> None:
    """Gives JAX one device for each core of the CPU; call it before JAX is used for anything.

    It does nothing if JAX has started already, or if ``JAX_NUM_CPU_DEVICES`` or XLA's own flag sets
    the number. An accelerator's devices still come first.
    """
    if _XLA_FLAG in os.environ.get("XLA_FLAGS", "") or _number() >= 0:
        return
    try:
        jax.config.update(_OPTION, min(_cores(), _MOST))
    except RuntimeError:
        return  # JAX has started, and keeps the devices that it has.


def best_count(num_envs: int, divides: Callable[[int], bool]) -> int | None:
    """Chooses how many cores to train on.

    Args:
        num_envs: environments side by side.
        divides: from a number of devices to whether a run can be split over them.

    Returns:
        The number; None where JAX's devices are no cores.
    """
    if _number() < 0 or jax.default_backend() != "cpu":
        return None
    most = min(jax.device_count(), num_envs // ENVS_PER_CORE)
    return next((n for n in range(most, 1, -1) if divides(n)), 1)


def _number() -> int:
    return jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
