"""Types that several modules share."""

from typing import TYPE_CHECKING, Any, TypeAlias

from jaxtyping import Array, PyTree

if TYPE_CHECKING:
    # Type checkers cannot see into PyTree[...].
    ArrayTree: TypeAlias = Any
else:
    ArrayTree = PyTree[Array]
