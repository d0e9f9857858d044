"""Compiling functions that may be called from compiled code or on their own."""

import functools
from collections.abc import Callable
from typing import Any, TypeVar, cast

import equinox as eqx

Function = TypeVar("Function", bound=Callable[..., Any])


def jit_inline(function: Function) -> Function:
    """Compiles a function where it is called on its own, as ``equinox.filter_jit`` does.

    Within another function that is compiled, it is traced as if it were not decorated. For
    functions of many operations: called on their own, each operation would be compiled alone.

    As with ``equinox.filter_jit``, arrays are traced, NumPy's numbers too. All else is part of the
    program, must be hashable, and is told apart by ``==``: 1 and 1.0 are one. So make those numbers
    arrays before that change from call to call, or whose type matters.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> @pm.jax_tools.jit_inline
        ... def double(x):
        ...     return 2 * x
        >>> "jit" in str(jax.make_jaxpr(double)(jnp.ones(2)))
        False
    """
    compiled = eqx.filter_jit(function, inline=True)  # pyright: ignore

    # A function still, and a method of a class: jax.jit takes no method that filter_jit has made.
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    return cast(Function, call)
