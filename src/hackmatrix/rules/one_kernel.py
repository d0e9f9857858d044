"""Loops as single kernels on a CPU.

XLA's CPU compiler makes a kernel of each operation in a loop's body and launches the kernels one by
one in every iteration. With only a few games, the launches in the rules' loops take longer than the
work. The compiler makes one kernel of a call that is marked as small; on its own, it marks loops
over less than a kilobyte of data (``SmallWhileLoopHoistingPass``). Such a kernel runs on one core
and is less optimized, so it does not suit loops over a large batch.

The mark changes no result. XLA does not promise to support the mark, so this module sets it only in
programs for CPUs, and only with tested versions of jaxlib.
"""

import logging
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TypeVar

import jax
from jax import lax
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import batching, mlir
from jaxtyping import Array

_Carry = TypeVar("_Carry")

MARKED = version("jaxlib").startswith(("0.10.", "0.11."))
"""Whether loops are marked: only with tested versions of jaxlib."""

# The second mark keeps the call from being inlined before the compiler reads the first mark.
_MARKS = ("xla_cpu_small_call", "true"), ("inlineable", "false")


def while_loop(
    some_left: Callable[[_Carry], Array], turn: Callable[[_Carry], _Carry], start: _Carry
) -> _Carry:
    """``jax.lax.while_loop``, compiled to one kernel on a CPU.

    The body must hold nothing that XLA hands to a library on a CPU: no sorts, scatters, matrix
    products, or sums of bytes or floats.
    """
    return _in_one_kernel(lambda start: lax.while_loop(some_left, turn, start), start)


def fori_loop(
    first: int, end: Array | int, turn: Callable[[Array, _Carry], _Carry], start: _Carry
) -> _Carry:
    """``jax.lax.fori_loop``, compiled to one kernel on a CPU; see :func:`while_loop`."""
    return _in_one_kernel(lambda start: lax.fori_loop(first, end, turn, start), start)


def _in_one_kernel(loop: Callable[[_Carry], _Carry], start: _Carry) -> _Carry:
    # The call holds only the loop, like the calls that the compiler marks itself: marked calls that
    # held more have crashed.
    leaves, structure = jax.tree.flatten(jax.jit(loop)(start))
    # Marking one result of the call marks the call.
    return jax.tree.unflatten(structure, [_mark.bind(leaves[0]), *leaves[1:]])


_mark = Primitive("in_one_kernel")
_mark.def_impl(lambda result: result)
_mark.def_abstract_eval(lambda result: result)
batching.defvectorized(_mark)


def _mark_call(context: mlir.LoweringRuleContext, result: Any) -> list[Any]:
    del context
    if getattr(result.owner, "name", "") == "func.call":
        marks: dict[str, Any] = {name: ir.StringAttr.get(value) for name, value in _MARKS}
        result.owner.attributes["mhlo.frontend_attributes"] = ir.DictAttr.get(marks)
    return [result]


mlir.register_lowering(_mark, lambda context, result: [result])
if MARKED:
    # Not cached, or JAX would lower the mark in a separate function, apart from the call.
    mlir.register_lowering(_mark, _mark_call, platform="cpu", cacheable=False)
else:
    logging.getLogger(__name__).warning(
        "jaxlib %s has not been tried with loops as single kernels, so they are off: the game "
        "takes about a tenth longer on a CPU",
        version("jaxlib"),
    )
