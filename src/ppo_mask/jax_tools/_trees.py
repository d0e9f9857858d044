"""Trees of arrays: their types and shapes, and the one form that compiled programs get."""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PyTree

if TYPE_CHECKING:
    # Type checkers cannot see into PyTree[...].
    ArrayTree: TypeAlias = Any
else:
    ArrayTree = PyTree[Array]

# Not Int[ArrayLike, ""]: that lets NumPy's floats pass.
IntScalarLike: TypeAlias = Int[Array, ""] | Int[np.ndarray, ""] | np.integer[Any] | int
"""A whole number: one of Python's or NumPy's, or an array of shape []. An action is one."""


def describe_shapes(tree: Any) -> dict[str, str]:
    """Describes the dtype and shape of each leaf, by its place in the tree.

    Args:
        tree: of arrays, or of ``jax.ShapeDtypeStruct``.

    Returns:
        Such as ``{".reward": "float32[]"}``.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def zeros_from_shapes(shapes: Any, *leading: int) -> ArrayTree:
    """Makes zeros of the shapes and dtypes that ``jax.eval_shape`` gives.

    Args:
        shapes: a tree of ``jax.ShapeDtypeStruct``.
        leading: sizes of axes that each array has before its own.
    """
    return jax.tree.map(lambda x: jnp.zeros((*leading, *x.shape), x.dtype), shapes)


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


def flat_numbers(observation: ArrayTree) -> Float[Array, " features"]:
    """Joins all numbers of an observation to one vector, in the order of its tree.

    They become float32. One flat array of floats alone stays as it is.

    Args:
        observation: any tree of arrays.
    """
    leaves = [x for x in jax.tree.leaves(plain_dicts(observation)) if x.size]
    if len(leaves) == 1 and leaves[0].ndim == 1 and jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return leaves[0]
    nothing = jnp.zeros(0, jnp.float32)  # Without leaves there is still a vector.
    return jnp.concatenate([nothing, *(x.astype(jnp.float32).reshape(-1) for x in leaves)])


def _strong(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return jnp.asarray(leaf, jnp.result_type(leaf))
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.astype(leaf.dtype)
