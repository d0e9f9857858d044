"""Values that all members of a batch share."""

from collections.abc import Callable
from typing import Any

from jax.custom_batching import custom_vmap
from jaxtyping import Array, Shaped


def one_for_all(pick: Callable[[Array], Array], value: Shaped[Array, ""]) -> Shaped[Array, ""]:
    """Shares one value among all members of a batch; without ``jax.vmap`` it is the value itself.

    For the conditions of loops and branches: with one for each member, ``vmap`` would run every
    branch, and make a select of every turn of a loop. Works under nested ``vmap``, too.

    Args:
        pick: reduces the values of a batch, on one axis, to one of their type; such as ``jnp.any``.
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
