"""Checks the return values of custom losses and advantage estimators."""

from typing import Any, cast

import jax.numpy as jnp
from jaxtyping import Array, Float, Scalar

from ppo_mask.errors import RunError


class WrongPart(RunError, ValueError):
    """A custom loss or advantage estimator returned something that PPO cannot use."""


def checked_loss(result: Any) -> tuple[Scalar, dict[str, Scalar]]:
    """Checks the result of a loss, and converts its numbers to arrays.

    Raises:
        WrongPart: the result is not a pair of a number and a dictionary of numbers.
    """
    wanted = "the loss must return a pair: one number, and metrics by name"
    if not isinstance(result, tuple) or len(cast(Any, result)) != 2:
        raise WrongPart(f"{wanted}; it returned a {type(result).__name__}")
    number, metrics = cast(Any, result)
    if not isinstance(metrics, dict):
        raise WrongPart(f"{wanted}; it returned {_words(number)} and a {type(metrics).__name__}")
    named: dict[str, Any] = cast(Any, metrics)
    number = _one_number(number, f"{wanted}; the number is {_words(number)}")
    return number, {
        name: _one_number(x, f"{wanted}; the metric {name} is {_words(x)}")
        for name, x in named.items()
    }


def checked_advantage(
    result: Any, reward: Float[Array, "steps envs"]
) -> Float[Array, "steps envs"]:
    """Checks the result of an advantage estimator, and converts it to float32.

    Raises:
        WrongPart: the result is not one number for each reward.
    """
    if not _is_numeric(result) or jnp.shape(result) != reward.shape:
        raise WrongPart(
            f"the advantage estimator must return one number for each reward, of shape "
            f"{list(reward.shape)}; it returned {_words(result)}"
        )
    return jnp.asarray(result).astype(jnp.float32)


def _one_number(number: Any, otherwise: str) -> Scalar:
    if not _is_numeric(number) or jnp.shape(number) != ():
        raise WrongPart(otherwise)
    array = jnp.asarray(number)
    return array if jnp.issubdtype(array.dtype, jnp.floating) else array.astype(jnp.float32)


def _is_numeric(thing: Any) -> bool:
    return isinstance(thing, bool | int | float) or hasattr(thing, "dtype")


def _words(thing: Any) -> str:
    if not _is_numeric(thing):
        return f"a {type(thing).__name__}"
    return f"an array of shape {list(jnp.shape(thing))}"
