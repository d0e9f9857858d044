"""Controls how functions are compiled: inlined or not, for which platform, with which settings."""

import functools
import math
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Key, UInt32

Function = TypeVar("Function", bound=Callable[..., Any])
Result = TypeVar("Result")

# JAX's caches have this value in their keys, so a trace for one platform is not used for another.
_platform: Any = jax.make_user_context(None)


def jit_inline(function: Function) -> Function:
    """Compiles a function if its caller is not compiled, as ``equinox.filter_jit`` does.

    In a compiled caller the function is traced as if it were not decorated. Use this decorator for
    functions of many operations: a caller that is not compiled would otherwise compile each
    operation alone.

    As with ``equinox.filter_jit``, arrays and NumPy's scalars are traced. Every other argument is
    static: hashable, and compared by ``==``, so 1 and 1.0 share a trace. Pass a number that changes
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

    # A plain function, because a method made by filter_jit cannot be passed to jax.jit.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    return cast(Function, call)


def compile_for(tree: Any, function: Callable[..., Result]) -> Callable[..., Result]:
    """Compiles ``function(tree, *args)`` for one tree, and returns a function of ``args`` alone.

    Calls take less time than those of ``equinox.filter_jit``, which splits the tree in each call.
    Trees that differ only in the values of their arrays share a program.

    Args:
        tree: any tree; the function that is returned keeps its arrays.
        function: a function of the tree, and of arguments as ``jax.jit`` takes them.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> model = {"weights": jnp.ones(2), "name": "mine"}
        >>> scale = pm.jax_tools.compile_for(model, lambda model, x: model["weights"] * x)
        >>> print(scale(3.0))
        [3. 3.]
    """
    parts = eqx.partition(tree, lambda leaf: isinstance(leaf, jax.Array | np.ndarray))
    (arrays, of_arrays), (leaves, of_static) = map(jax.tree.flatten, parts)
    # The keys are hashable, whatever the containers are; a list of arrays is flattened fast.
    return functools.partial(_compiled(function, of_arrays, of_static, tuple(leaves)), arrays)


@functools.lru_cache(maxsize=64)
def _compiled(function: Callable[..., Any], of_arrays: Any, of_static: Any, leaves: Any) -> Any:
    def call(arrays: list[Any], *args: Any) -> Any:
        parts = jax.tree.unflatten(of_arrays, arrays), jax.tree.unflatten(of_static, leaves)
        return function(eqx.combine(*parts), *args)

    return jax.jit(call)


@contextmanager
def number_settings(
    x64: bool = False, dtypes: str = "standard", ranks: str = "allow"
) -> Generator[None]:
    """Traces the code in a ``with`` block under JAX's default number settings.

    Code that relies on these defaults needs this context manager, because a program may have set
    ``jax_enable_x64``, or have made ``jax_numpy_dtype_promotion`` or ``jax_numpy_rank_promotion``
    strict. Arrays from outside the block must have 32-bit types. Also works as a decorator.

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
    """Wraps a function, so that later traces of it use the current number settings."""
    config = jax.config
    now = number_settings(
        config.jax_enable_x64,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_dtype_promotion,  # pyright: ignore[reportAttributeAccessIssue]
        config.jax_numpy_rank_promotion,  # pyright: ignore[reportAttributeAccessIssue]
    )
    return now(function)


def for_platform(platform: str) -> AbstractContextManager[None]:
    """Traces the code in a ``with`` block for a platform, not for JAX's default device.

    Args:
        platform: JAX's name of the platform: "cpu", "gpu", "tpu".

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
    """Returns the platform of JAX's default device."""
    chosen: Any = jax.config.jax_default_device  # pyright: ignore[reportAttributeAccessIssue]
    if chosen is None:
        return jax.default_backend()
    return chosen if isinstance(chosen, str) else chosen.platform


def by_platform(
    on_cpu: Callable[..., Result], elsewhere: Callable[..., Result], *operands: Any
) -> Result:
    """Computes ``on_cpu(*operands)`` in a program for a CPU, ``elsewhere(*operands)`` in others.

    Only the chosen function is traced. A program that was traced for one platform
    (:func:`for_platform`) gives the same result on another, only more slowly.

    Args:
        on_cpu: the form for a CPU. A CPU computes little at a time but starts kernels quickly.
        elsewhere: the form for accelerators, with the same result. An accelerator computes much
            at a time, but each kernel and each iteration of a loop waits for the one before.
        operands: the arguments of the chosen function.
    """
    platform = _platform.value or default_platform()
    return (on_cpu if platform == "cpu" else elsewhere)(*operands)


# XLA takes two to three times as long to compile JAX's random generator for a CPU if the result has
# several axes. So these functions make a result with one axis, and then reshape.


def split_key(key: Key[Array, ""], *shape: int) -> Key[Array, "..."]:
    """Splits a key as ``jax.random.split(key, shape)`` does."""
    return jax.random.split(key, math.prod(shape)).reshape(shape)


def random_bits(key: Key[Array, ""], *shape: int) -> UInt32[Array, "..."]:
    """Samples random 32-bit words as ``jax.random.bits(key, shape)`` does."""
    return jax.random.bits(key, (math.prod(shape),), jax.numpy.uint32).reshape(shape)
