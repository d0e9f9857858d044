"""Finds the line of code that makes a NaN: repeats an update, and checks every operation."""

import re
import traceback
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
from jax.experimental import checkify

from ppo_mask.jax_tools import ArrayTree

# The reported line is in the user's code or in this library, not in these packages or in Python.
_BELOW = re.compile(
    r"-packages.(jax|jaxtyping|equinox|beartype|optax|distreqx)\W|\Wpython3\.\d+.\w+\.py$|^<"
)


def find_first_nan(update: Callable[[Any], Any], state: Any) -> str | None:
    """Finds the operation in the next update that makes the first NaN, and its line of code.

    A NaN that a ``where`` masks is reported, too, because such a NaN may reach a gradient. Compiles
    the update again, which takes several times as long as usual.

    Args:
        update: makes an update; for one device.
        state: the argument of ``update``, a tree.

    Returns:
        A description in one line; None if there is no NaN (values may be infinite without any NaN).
    """
    arrays, static = eqx.partition(state, eqx.is_array)

    def of_arrays(arrays: ArrayTree) -> ArrayTree:
        return eqx.filter(update(eqx.combine(arrays, static)), eqx.is_array)

    error, _ = jax.jit(checkify.checkify(of_arrays, errors=checkify.nan_checks))(arrays)
    try:
        error.throw()
    except checkify.JaxRuntimeError as raised:
        cause = raised.__cause__
        frames = traceback.extract_tb(None if cause is None else cause.__traceback__)
        lines = [
            f"{x.filename}:{x.lineno} ({x.name})" for x in frames if not _BELOW.search(x.filename)
        ]
        what = str(raised).rstrip(".")
        return f"{what} at {lines[-1]}" if lines else what
    return None
