"""Values that all members of a batch share."""

from collections.abc import Callable
from typing import Any

from jax.custom_batching import custom_vmap
from jaxtyping import Array, Shaped


def one_for_all(pick: Callable[[Array], Array], value: Shaped[Array, ""]) -> Shaped[Array, ""]:
    """The value; under ``jax.vmap``, however often, what is picked of the members' values.

    For loops and conditions: with an answer of its own for each member, ``vmap`` would run every
    branch and guard every turn.

    Args:
        pick: from the values of a batch, on one axis, to one of their type.
        value: the member's.
    """

    @custom_vmap
    def shared(value: Any) -> Any:
        return value

    @shared.def_vmap
    def _(size: int, batched: Any, values: Any) -> Any:  # pyright: ignore
        del size, batched
        return one_for_all(pick, pick(values)), False

    return shared(value)
