"""Checks what a part of somebody's own, such as a loss or a network, has returned."""

from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ppo_mask.errors import WrongPart
from ppo_mask.jax_tools._trees import changes


def check_changes(who: str, what: str, before: Any, after: Any) -> None:
    """Checks that a custom part has changed nothing of a tree but the values of its arrays.

    Args:
        who: the part, for the error's message.
        what: the tree, likewise.
        before: the tree before.
        after: the tree that the part returned.

    Raises:
        WrongPart: it has; the message names an array that is of another shape or dtype.
    """
    for name, was, now in changes(*(eqx.filter(x, eqx.is_array) for x in (before, after))):
        raise WrongPart(
            f"{who} may change values alone of {what}: {name.lstrip('.') or 'it'} was {was}, and "
            f"is {now}"
        )


def parts_of(wanted: str, result: Any, count: int) -> tuple[Any, ...]:
    """Checks that a custom part returned so many things.

    Raises:
        WrongPart: it returned something else; the message begins with ``wanted``.
    """
    if not isinstance(result, tuple) or len(cast(Any, result)) != count:
        raise WrongPart(f"{wanted}; it returned a {type(result).__name__}")
    return cast(Any, result)


def as_floats(result: Any, shape: tuple[int, ...], otherwise: str) -> Float[Array, "..."]:
    """Converts what a custom part returned to an array of floats.

    Args:
        result: a number or an array.
        shape: the shape that it must have.
        otherwise: the beginning of the error's message.

    Raises:
        WrongPart: it is something else.
    """
    if not isinstance(result, bool | int | float) and not hasattr(result, "dtype"):
        raise WrongPart(f"{otherwise} a {type(result).__name__}")
    if jnp.shape(result) != shape:
        raise WrongPart(f"{otherwise} an array of shape {list(jnp.shape(result))}")
    array = jnp.asarray(result)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.float32)
