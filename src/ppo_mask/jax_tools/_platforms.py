"""Two ways to compute the same, chosen by the platform that a program is for."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, TypeVar

import jax

Result = TypeVar("Result")

# Part of the keys of JAX's caches: what was traced for one platform is not used for another.
_platform: Any = jax.make_user_context(None)


def for_platform(platform: str) -> AbstractContextManager[None]:
    """Has what is traced in it be for a platform; all else is for JAX's default device.

    Args:
        platform: as JAX names it: "cpu", "gpu", "tpu".

    Example:
        >>> import jax, ppo_mask as pm
        >>> def chosen():
        ...     return pm.jax_tools.by_platform(lambda: 0, lambda: 1)
        >>> with pm.jax_tools.for_platform("tpu"):
        ...     print(jax.jit(chosen)())
        1
    """
    return _platform(None if platform == default_platform() else platform)


def default_platform() -> str:
    """The platform of JAX's default device."""
    chosen: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is None:
        return jax.default_backend()
    return chosen if isinstance(chosen, str) else chosen.platform


def by_platform(
    on_cpu: Callable[..., Result], elsewhere: Callable[..., Result], *operands: Any
) -> Result:
    """Computes ``on_cpu(*operands)`` in a program for a CPU, ``elsewhere(*operands)`` in others.

    Only what is chosen is traced. A program that is lowered for another platform than it was traced
    for (:func:`for_platform`) computes the same, in the way that is the slower one there.

    Args:
        on_cpu: a CPU computes little at a time, and starts kernels quickly.
        elsewhere: gives the same. An accelerator computes much at a time, but each kernel and each
            turn of a loop waits for the one before, however little is in it.
        operands: of both.
    """
    platform = _platform.value or default_platform()
    return (on_cpu if platform == "cpu" else elsewhere)(*operands)
