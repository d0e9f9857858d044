"""Types that several modules share, and how messages describe them."""

from typing import TYPE_CHECKING, Any, TypeAlias

import jax
import numpy as np
from jaxtyping import Array, Int, PyTree

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
