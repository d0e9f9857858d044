"""Tools for JAX programs, used by environments and learners.

- :func:`rarely` runs an expensive branch only for the few members of a batch that need it.
- :func:`one_for_all` reduces a condition to one value for a whole batch.
- :func:`by_platform` chooses between two implementations of a function, and :func:`for_platform`
  the platform.
- :func:`jit_inline` compiles a function, or inlines it where the caller is compiled.
- :func:`compile_for` compiles a function of one tree, for many fast calls.
- :func:`number_settings` traces code under JAX's default number settings.
- :func:`check_weights` and :func:`sane_weights` are for relative frequencies.
- :func:`check_types` checks a package's type annotations while its functions are traced.
"""

from .._typecheck import check_types
from ._programs import by_platform, compile_for, for_platform, jit_inline, number_settings
from ._rarely import one_for_all, rarely
from ._trees import ArrayTree, IntScalarLike, check_weights, flat_numbers, sane_weights

__all__ = [
    "ArrayTree",
    "IntScalarLike",
    "by_platform",
    "check_types",
    "check_weights",
    "compile_for",
    "flat_numbers",
    "for_platform",
    "jit_inline",
    "number_settings",
    "one_for_all",
    "rarely",
    "sane_weights",
]
