"""A CPU's cores as JAX devices, each with its own environments.

XLA splits only large operations over cores, but most operations of environments are small
operations or sequential loops. With a device for each core, a program runs on all cores at once
(docs/benchmarks.md has measurements).
"""

import os
from collections.abc import Callable

import jax

from ppo_mask.devices.containers import core_limit

ENVS_PER_CORE = 128
"""With fewer environments per core, one more device costs more than it gains (measured)."""

_MOST = 16
_OPTION, _XLA_FLAG = "jax_num_cpu_devices", "xla_force_host_platform_device_count"


def make_devices() -> None:
    """Gives JAX one device for each core of the CPU; call this before anything uses JAX.

    A container's quota of CPU time counts like a number of cores.
    Does nothing if JAX has started already, or if ``JAX_NUM_CPU_DEVICES`` or XLA's own flag sets
    the number of devices. An accelerator, if there is one, stays JAX's default.
    """
    if _XLA_FLAG in os.environ.get("XLA_FLAGS", "") or _number() >= 0:
        return
    try:
        jax.config.update(_OPTION, min(_cores(), _MOST))
    except RuntimeError:
        return  # JAX has started and keeps its devices.


def best_count(num_envs: int, divides: Callable[[int], bool]) -> int | None:
    """Chooses how many cores to train on.

    Args:
        num_envs: the number of parallel environments.
        divides: tells whether a run can be split over a number of devices.

    Returns:
        The number of cores; None if JAX's devices are not cores.
    """
    if _number() < 0 or jax.default_backend() != "cpu":
        return None
    most = min(jax.device_count(), num_envs // ENVS_PER_CORE)
    return next((n for n in range(most, 1, -1) if divides(n)), 1)


def _number() -> int:
    return jax.config.jax_num_cpu_devices  # pyright: ignore[reportAttributeAccessIssue]


def _cores() -> int:
    has_affinity = hasattr(os, "sched_getaffinity")
    cores = len(os.sched_getaffinity(0)) if has_affinity else os.cpu_count() or 1
    return max(1, int(min(cores, core_limit())))
