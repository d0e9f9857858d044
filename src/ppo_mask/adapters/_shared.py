"""What the adapters have in common."""

import importlib
from typing import Any, final

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree


def library(name: str) -> Any:
    """Another library's module, imported only when it is needed.

    Raises:
        RunError: it cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        extra = name.split(".")[0]
        raise RunError(
            f"{extra} cannot be imported ({error}); pip install 'ppo-mask[{extra}]', or "
            "'ppo-mask[adapters]' for all libraries that there are adapters for"
        ) from error


@final
class Foreign:
    """An object of another library as a static field: equal to itself alone, whatever it holds."""

    def __init__(self, environment: Any):
        self.environment = environment

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Foreign) and other.environment is self.environment

    def __hash__(self) -> int:
        return id(self.environment)

    def __repr__(self) -> str:
        return repr(self.environment)


def settled(tree: Any) -> ArrayTree:
    """Arrays of definite types, in containers of their own.

    Other libraries leave Python numbers and weak types in their states, which turn into something
    else with the first step; and some write into the containers that they are given.
    """
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def told(info: dict[str, Any]) -> dict[str, Array]:
    """What of a library's info is single arrays."""
    leaves = {name: value for name, value in info.items() if jax.tree_util.all_leaves([value])}
    return settled(leaves)


def lawful(mask: Bool[Array, " actions"], ended: Bool[Array, ""]) -> Bool[Array, " actions"]:
    """The mask as the protocol wants it: all True where the episode has ended.

    It is never all False either: where a library allows nothing although its episode goes on, as
    jumanji does to a snake that is trapped, any action does what the library does with it.
    """
    return mask | ended | ~mask.any()
