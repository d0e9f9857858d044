"""Tools for JAX, for environments and learners.

:func:`rarely` computes something expensive for the few members of a batch that need it,
:func:`one_for_all` is for conditions that a whole batch shares, :func:`by_platform` chooses between
two ways to compute the same, :func:`jit_inline` is for functions that are called from compiled code
and on their own, :func:`scan_until` and :func:`mean_over_parts` are loops, :func:`number_settings`
is for code that relies on JAX's default settings, :func:`plain_dicts` and :func:`strong_types` make
different ways to write a tree one, and :func:`check_types` checks the annotations of a package when
its functions are traced.
"""

from .._typecheck import check_types
from ._loops import mean_over_parts, scan_until
from ._programs import (
    by_platform,
    default_platform,
    for_platform,
    jit_inline,
    number_settings,
    random_bits,
    split_key,
)
from ._rarely import one_for_all, rarely
from ._trees import (
    ArrayTree,
    IntScalarLike,
    describe_shapes,
    flat_numbers,
    plain_dicts,
    strong_types,
    zeros_from_shapes,
)

__all__ = [
    "ArrayTree",
    "IntScalarLike",
    "by_platform",
    "check_types",
    "default_platform",
    "describe_shapes",
    "flat_numbers",
    "for_platform",
    "jit_inline",
    "mean_over_parts",
    "number_settings",
    "one_for_all",
    "plain_dicts",
    "random_bits",
    "rarely",
    "scan_until",
    "split_key",
    "strong_types",
    "zeros_from_shapes",
]
