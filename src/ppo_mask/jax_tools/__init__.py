"""Tools for JAX that environments and learners need alike.

:func:`rarely` computes something expensive for the few members of a batch that need it,
:func:`one_for_all` is for conditions that a whole batch shares, :func:`scan_until` and
:func:`mean_over_parts` are loops, and :func:`check_types` has the annotations of a package checked
when its functions are traced.
"""

from .._typecheck import check_types as check_types
from ._batch import one_for_all as one_for_all
from ._loops import mean_over_parts as mean_over_parts
from ._loops import scan_until as scan_until
from ._loops import zeros_of as zeros_of
from ._random import bits as bits
from ._random import split as split
from ._rarely import rarely as rarely
from ._types import ArrayTree as ArrayTree
from ._types import described as described

__all__ = [
    "ArrayTree",
    "bits",
    "check_types",
    "described",
    "mean_over_parts",
    "one_for_all",
    "rarely",
    "scan_until",
    "split",
    "zeros_of",
]
