"""Tools for JAX programs, used by environments and learners.

- :func:`rarely` runs an expensive branch only for the few members of a batch that need it.
- :func:`one_for_all` reduces a condition to one value for a whole batch.
- :func:`by_platform` chooses between two implementations of a function.
- :func:`jit_inline` compiles a function, or inlines it where the caller is compiled.
- :func:`compile_for` compiles a function of one tree, for many fast calls.
- :func:`scan_until` and :func:`mean_over_parts` are loops.
- :func:`number_settings` traces code under JAX's default number settings.
- :func:`plain_dicts` and :func:`strong_types` convert trees to a canonical form.
- :func:`check_weights` and :func:`sane_weights` are for relative frequencies.
- :func:`python_scalar` converts a NumPy scalar to a Python one.
- :func:`check_types` checks a package's type annotations while its functions are traced.
"""

from .._typecheck import check_types
from ._loops import mean_over_parts, scan_until
from ._programs import (
    by_platform,
    compile_for,
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
    changes,
    check_weights,
    describe_shapes,
    differences,
    flat_numbers,
    plain_dicts,
    python_scalar,
    sane_weights,
    strong_types,
    widen_floats,
    zeros_from_shapes,
)

__all__ = [
    "ArrayTree",
    "IntScalarLike",
    "by_platform",
    "changes",
    "check_types",
    "check_weights",
    "compile_for",
    "default_platform",
    "describe_shapes",
    "differences",
    "flat_numbers",
    "for_platform",
    "jit_inline",
    "mean_over_parts",
    "number_settings",
    "one_for_all",
    "plain_dicts",
    "python_scalar",
    "random_bits",
    "rarely",
    "sane_weights",
    "scan_until",
    "split_key",
    "strong_types",
    "widen_floats",
    "zeros_from_shapes",
]
