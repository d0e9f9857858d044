"""A call out of a compiled program."""

from collections.abc import Callable
from typing import Any, no_type_check

import jax
import numpy as np
from jax.experimental import io_callback
from jax.experimental.buffer_callback import buffer_callback
from jaxtyping import Array

from ppo_mask.devices.platforms import platform_of


def call_host(function: Callable[..., Any], shapes: Any, *arrays: Array) -> Any:
    """Calls a function of the host from compiled code."""
    if platform_of(None) != "cpu":

        @no_type_check
        def copies(*arrays: Any) -> Any:
            return jax.tree.map(np.array, function(*arrays))

        return io_callback(copies, shapes, *arrays)

    # An eighth of the time, but on a CPU only: elsewhere the buffers are the device's.
    @no_type_check
    def fill(context: Any, out: Any, *arrays: Any) -> None:
        del context
        for buffer, array in zip(
            jax.tree.leaves(out), jax.tree.leaves(function(*arrays)), strict=True
        ):
            np.asarray(buffer)[...] = array

    return buffer_callback(fill, shapes, has_side_effect=True)(*arrays)
