"""Describes trees of arrays, and converts trees to a canonical form."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float, Int, PyTree

if TYPE_CHECKING:
    # Type checkers cannot see into PyTree[...].
    ArrayTree: TypeAlias = Any
else:
    ArrayTree = PyTree[Array]

# Not Int[ArrayLike, ""], which accepts NumPy's floats.
IntScalarLike: TypeAlias = Int[Array, ""] | Int[np.ndarray, ""] | np.integer[Any] | int
"""An integer of Python or NumPy, or an integer array of shape []; actions have this type."""


def describe_shapes(tree: Any) -> dict[str, str]:
    """Describes the dtype and shape of each leaf, by its path in the tree.

    Args:
        tree: a tree of arrays, or of ``jax.ShapeDtypeStruct``.

    Returns:
        A dictionary such as ``{".reward": "float32[]"}``.
    """
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def differences(one: Mapping[str, str], other: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """Compares two descriptions, as of :func:`describe_shapes`.

    Yields:
        For each name whose words differ: the name, and both words; "nothing" for what is not there.
    """
    for name in dict.fromkeys((*one, *other)):
        words = one.get(name, "nothing"), other.get(name, "nothing")
        if words[0] != words[1]:
            yield name, *words


def changes(before: Any, after: Any) -> Iterator[tuple[str, str, str]]:
    """Yields the :func:`differences` of the shapes and dtypes of two trees."""
    return differences(describe_shapes(before), describe_shapes(after))


def zeros_from_shapes(shapes: Any, *leading: int) -> ArrayTree:
    """Makes zeros of the given shapes and dtypes.

    Args:
        shapes: a tree of ``jax.ShapeDtypeStruct``, such as the result of ``jax.eval_shape``.
        leading: sizes of extra leading axes.
    """
    return jax.tree.map(lambda x: jnp.zeros((*leading, *x.shape), x.dtype), shapes)


def python_scalar(value: Any) -> Any:
    """Converts a NumPy scalar to a Python one; returns any other value as it is."""
    return value.item() if isinstance(value, np.generic) else value


@no_type_check
def plain_dicts(tree: Any) -> Any:
    """Replaces each ``OrderedDict`` in a tree with a ``dict``: JAX flattens the two differently."""

    @no_type_check
    def plain(node: Any) -> Any:
        if not isinstance(node, OrderedDict):
            return node
        return {key: plain_dicts(each) for key, each in node.items()}

    return jax.tree.map(plain, tree, is_leaf=lambda node: isinstance(node, OrderedDict))


def strong_types(tree: Any) -> Any:
    """Converts the Python and NumPy numbers in a tree to arrays, and removes weak types.

    A loop in JAX refuses a step that returns other types than it got. The containers are copied.
    """
    return jax.tree.map(_strong, tree)


def widen_floats(tree: ArrayTree) -> ArrayTree:
    """Casts short floats to float32: a sum of bfloat16 or float16 drops terms or overflows.

    Args:
        tree: a tree of floats.
    """
    return jax.tree.map(lambda x: x.astype(jnp.float32) if x.dtype.itemsize < 4 else x, tree)


def flat_numbers(observation: ArrayTree) -> Float[Array, " features"]:
    """Concatenates all numbers of an observation into one vector, in the order of the leaves.

    Numbers become float32, but an observation that is a single vector of floats stays as it is.

    Args:
        observation: any tree of arrays.
    """
    leaves = [x for x in jax.tree.leaves(plain_dicts(observation)) if x.size]
    if len(leaves) == 1 and leaves[0].ndim == 1 and jnp.issubdtype(leaves[0].dtype, jnp.floating):
        return leaves[0]
    nothing = jnp.zeros(0, jnp.float32)  # The result for an observation without numbers.
    return jnp.concatenate([nothing, *(x.astype(jnp.float32).reshape(-1) for x in leaves)])


def _strong(leaf: Any) -> Any:
    if not isinstance(leaf, jax.Array):
        return jnp.asarray(leaf, jnp.result_type(leaf))
    return leaf if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.astype(leaf.dtype)


def check_weights(name: str, weights: Any) -> None:
    """Checks that relative frequencies make sense, where there are any whose values are known.

    Raises:
        ValueError: a weight is negative or not finite, or all are 0.
    """
    if isinstance(weights, Tracer) or not isinstance(weights, jax.Array | np.ndarray):
        return
    values = np.asarray(weights, np.float64)
    if not (values.min(initial=0) >= 0 and 0 < values.sum() < np.inf):
        raise ValueError(f"{name} must be finite, 0 or more, and not all 0, got {values.tolist()}")


def sane_weights(weights: Array) -> Array:
    """Replaces what is negative or NaN among traced weights by 0, so that it is never sampled."""
    return jnp.where(weights > 0, weights, 0)
