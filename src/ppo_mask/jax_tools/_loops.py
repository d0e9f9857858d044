"""``scan`` with early stopping, and a memory-saving mean over parts."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Bool, Int

from ppo_mask.jax_tools._trees import ArrayTree, widen_floats, zeros_from_shapes


def mean_over_parts(function: Callable[[ArrayTree], ArrayTree], parts: ArrayTree) -> ArrayTree:
    """Computes the mean of ``function`` over parts, one after another, to save memory.

    Args:
        function: maps a part to a tree of floats.
        parts: arrays with a leading axis, one entry for each part.

    Returns:
        The mean, with the structure and dtypes of the function's result.
    """

    def part(index: int) -> ArrayTree:
        return jax.tree.map(lambda x: x[index], parts)

    num_parts = len(jax.tree.leaves(parts)[0])
    if num_parts == 1:
        return function(part(0))
    function = jax.jit(function)  # Traced once; the shapes and the loop share the trace.
    shapes = jax.eval_shape(lambda: function(part(0)))
    # As one vector: a sum of its own for each array would be a kernel each.
    nothing, apart = ravel_pytree(zeros_from_shapes(jax.eval_shape(widen_floats, shapes)))

    def add(total: Array, part: ArrayTree) -> tuple[Array, None]:
        return total + ravel_pytree(widen_floats(function(part)))[0], None

    total, _ = jax.lax.scan(add, nothing, parts)

    means = apart(total / num_parts)
    return jax.tree.map(lambda x, like: x.astype(like.dtype), means, shapes)


def scan_until(
    stop: Callable[[ArrayTree], Bool[Array, ""]] | None,
    step: Callable[[Any, Any], tuple[Any, ArrayTree]],
    carry: ArrayTree,
    xs: ArrayTree,
) -> tuple[ArrayTree, ArrayTree, Int[Array, ""]]:
    """Runs ``jax.lax.scan`` up to the first step for which ``stop`` holds, and discards that step.

    Args:
        stop: tells from a step's output whether to discard the step and stop; None takes all steps.
        step: maps a carry and an entry of ``xs`` to the next carry and an output, as in ``scan``.
        carry: the initial carry.
        xs: arrays with a leading axis, one entry for each step.

    Returns:
        The carry after the last step taken, the outputs (0 for steps not taken), and the number of
        steps taken.
    """
    length = len(jax.tree.leaves(xs)[0])
    if stop is None:
        return *jax.lax.scan(step, carry, xs), jnp.int32(length)

    def unfinished(loop: tuple[Any, ...]) -> Bool[Array, ""]:
        taken, stopped, _, _ = loop
        return (taken < length) & ~stopped

    def body(loop: tuple[Any, ...]) -> tuple[Any, ...]:
        taken, _, carry, outs = loop
        new, out = step(carry, jax.tree.map(lambda x: x[taken], xs))
        stopped = stop(out)
        carry = jax.tree.map(lambda old, new: jnp.where(stopped, old, new), carry, new)
        outs = jax.tree.map(
            lambda old, new: old.at[taken].set(jnp.where(stopped, 0, new)), outs, out
        )
        return taken + (~stopped).astype(jnp.int32), stopped, carry, outs

    shapes = jax.eval_shape(lambda xs: step(carry, jax.tree.map(lambda x: x[0], xs))[1], xs)
    outs = zeros_from_shapes(shapes, length)
    begin = jnp.int32(0), jnp.array(False), carry, outs
    taken, _, carry, outs = jax.lax.while_loop(unfinished, body, begin)
    return carry, outs, taken
