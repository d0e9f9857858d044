"""Trees of arrays, brought into the one form that compiled programs get."""

from collections import OrderedDict
from typing import Any

import jax
import jax.numpy as jnp


def plain_dicts(tree: Any) -> Any:
    """The same tree with ``dict`` for ``OrderedDict``, which JAX flattens in another order."""

    def plain(node: Any) -> Any:
        if not isinstance(node, OrderedDict):
            return node
        return {key: plain_dicts(each) for key, each in node.items()}

    return jax.tree.map(plain, tree, is_leaf=lambda node: isinstance(node, OrderedDict))


def strong_types(tree: Any) -> Any:
    """The same tree with arrays for numbers of Python's and NumPy's, and without weak types."""
    return jax.tree.map(_strong, tree)


def _strong(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return jnp.asarray(leaf, jnp.result_type(leaf))
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.astype(leaf.dtype)
