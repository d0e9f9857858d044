"""How functions are compiled: inlined or alone, for which platform, under which settings."""

import functools
import math
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
from jaxtyping import Array, Key, UInt32

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

# Part of the keys of JAX's caches: a trace for one platform is not used for another.
_platform: Any = jax.make_user_context(None)


def jit_inline(function: Function) -> Function:
    """Compiles a function where it is called on its own, as ``equinox.filter_jit`` does.

    Within another function that is compiled, it is traced as if it were not decorated. For
    functions of many operations: called on their own, each operation would be compiled alone.

    As with ``equinox.filter_jit``, arrays and NumPy's scalars are traced. Every other argument is
    static: hashable, and compared by ``==``, so 1 and 1.0 are the same. Pass a number that changes
    from call to call, or whose type matters, as an array.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> @pm.jax_tools.jit_inline
        ... def double(x):
        ...     return 2 * x
        >>> "jit" in str(jax.make_jaxpr(double)(jnp.ones(2)))
        False
    """
    compiled = eqx.filter_jit(function, inline=True)  # pyright: ignore

    # A plain function: filter_jit's own result, as a method, cannot be passed to jax.jit.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    return cast(Function, call)


@contextmanager
def number_settings(
    x64: bool = False, dtypes: str = "standard", ranks: str = "allow"
) -> Generator[None]:
    """Traces the code inside under JAX's default number settings.

    For code that relies on them: a program may have set ``jax_enable_x64``, or have made
    ``jax_numpy_dtype_promotion`` or ``jax_numpy_rank_promotion`` strict. Arrays from outside must
    have 32-bit types. A decorator, too.

    Args:
        x64: as ``jax_enable_x64``.
        dtypes: as ``jax_numpy_dtype_promotion``.
        ranks: as ``jax_numpy_rank_promotion``.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> with jax.numpy_dtype_promotion("strict"), pm.jax_tools.number_settings():
        ...     print(jnp.int32(1) + 0.5)
        1.5
    """
    with jax.enable_x64(x64), jax.numpy_dtype_promotion(dtypes), jax.numpy_rank_promotion(ranks):
        yield


def keep_settings(function: Function) -> Function:
    """Returns the function, to be traced later under the number settings in force now."""
    config = jax.config
    now = number_settings(
        config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_dtype_promotion,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_rank_promotion,  # pyright: ignore[reportAttributeAccessIssue]
    )
    return now(function)


def for_platform(platform: str) -> AbstractContextManager[None]:
    """Traces the code inside for a platform; other code is for JAX's default device.

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

    Only the chosen function is traced. A program that is lowered for another platform than it was
    traced for (:func:`for_platform`) gives the same result, only more slowly.

    Args:
        on_cpu: a CPU computes little at a time, and starts kernels quickly.
        elsewhere: gives the same. An accelerator computes much at a time, but each kernel and each
            turn of a loop waits for the one before, however little is in it.
        operands: of both.
    """
    platform = _platform.value or default_platform()
    return (on_cpu if platform == "cpu" else elsewhere)(*operands)


# XLA's CPU compiler takes two or three times as long for the rounds of JAX's generator over several
# axes as over one axis of as many numbers, and they are most of such a program.


def split_key(key: Key[Array, ""], *shape: int) -> Key[Array, "..."]:
    """Splits a key as ``jax.random.split(key, shape)`` does."""
    return jax.random.split(key, math.prod(shape)).reshape(shape)


def random_bits(key: Key[Array, ""], *shape: int) -> UInt32[Array, "..."]:
    """Draws random words as ``jax.random.bits(key, shape)`` does."""
    return jax.random.bits(key, (math.prod(shape),), jax.numpy.uint32).reshape(shape)
