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
import jax.numpy as jnp
from jax import lax
from jax.extend.core import Primitive
from jax.extend.mlir import ir
from jax.interpreters import batching, mlir
from jaxtyping import Array, Int

from hackmatrix.rules.batching import batch_max
from ppo_mask.jax_tools import by_platform

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


def take_turns(
    times: Int[Array, ""],
    turn: Callable[[Array, _Carry], _Carry],
    start: _Carry,
    most: int,
    at_once: int,
) -> _Carry:
    """Takes ``turn(number, carry)`` as often as any game of the batch needs.

    A CPU takes one turn after another, in one kernel; see :func:`while_loop`. An accelerator waits
    for the host before each iteration of a loop, so an iteration takes several turns.

    Args:
        times: how many turns a game needs. Turns with higher numbers must change nothing in it.
        turn: maps the turn's number, from 0, and the carry to the next carry.
        start: the carry before the first turn.
        most: no game needs more turns.
        at_once: turns in an iteration on an accelerator; at least ``most`` for no loop.
    """

    def on_cpu(start: _Carry) -> _Carry:
        end = batch_max(times)
        return _in_one_kernel(lambda start: lax.fori_loop(0, end, turn, start), start)

    def several(iteration: Array | int, carry: _Carry) -> _Carry:
        for number in range(min(at_once, most)):
            carry = each(jnp.int32(iteration * at_once + number), carry)
        return carry

    def elsewhere(start: _Carry) -> _Carry:
        if most <= at_once:
            return several(0, start)
        return lax.fori_loop(0, (batch_max(times) + at_once - 1) // at_once, several, start)

    each = jax.jit(turn)  # Traced once.
    return by_platform(on_cpu, elsewhere, start)


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
else:  # Nothing that a user can do anything about.
    logging.getLogger(__name__).info(
        "jaxlib %s has not been tried with loops as single kernels, so they are off: the game "
        "takes about a tenth longer on a CPU",
        version("jaxlib"),
    )
