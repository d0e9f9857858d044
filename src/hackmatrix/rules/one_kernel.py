"""Loops as single kernels on a CPU.

XLA's CPU compiler makes a kernel of each operation of a loop's body and starts one after another in
every turn. Where the rules loop over a few games, starting them takes longer than what they do. A
call that is marked as small is compiled to one kernel with all that is in it; the compiler itself
makes such calls of loops over less than a kilobyte (``SmallWhileLoopHoistingPass``). Such a kernel
runs on one core and is written with less care, so that it is not for loops over a whole batch.

The mark means nothing elsewhere and changes no result. As it is no promise of XLA's, it is written
for the versions that it was tried with, and only where a program is for a CPU.
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
"""Whether programs for CPUs are marked: it was tried with this version."""

# The call must not be inlined before the compiler comes to what the other one means.
_MARKS = ("xla_cpu_small_call", "true"), ("inlineable", "false")


def while_loop(
    some_left: Callable[[_Carry], Array], turn: Callable[[_Carry], _Carry], start: _Carry
) -> _Carry:
    """``jax.lax.while_loop``, on a CPU as one kernel.

    A turn must be without what a CPU has other code for than XLA's own: sorts, scatters, products
    of matrices, sums of bytes or floats.
    """
    return _in_one_kernel(lambda start: lax.while_loop(some_left, turn, start), start)


def fori_loop(
    first: int, end: Array | int, turn: Callable[[Array, _Carry], _Carry], start: _Carry
) -> _Carry:
    """``jax.lax.fori_loop``, as one kernel too."""
    return _in_one_kernel(lambda start: lax.fori_loop(first, end, turn, start), start)


def _in_one_kernel(loop: Callable[[_Carry], _Carry], start: _Carry) -> _Carry:
    # The loop alone is the call, as where the compiler makes one itself: calls of anything else
    # have ended the process.
    leaves, structure = jax.tree.flatten(jax.jit(loop)(start))
    # A mark on one result is a mark on the call that it comes from.
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
    # Not cached: in a function that stands for the mark, the call would not be seen.
    mlir.register_lowering(_mark, _mark_call, platform="cpu", cacheable=False)
else:
    logging.getLogger(__name__).warning(
        "jaxlib %s has not been tried with loops as single kernels, so they are off: the game "
        "takes about a tenth longer on a CPU",
        version("jaxlib"),
    )
