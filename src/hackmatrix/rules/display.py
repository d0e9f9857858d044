"""How positions show themselves in a notebook or by ``print``.

What is shown lies below what draws it, and must not import it. So what is shown calls these
functions, and what draws registers itself with them when it is imported, which
:mod:`hackmatrix` sees to. Where nothing has registered they return None, which notebooks take for
"there is no such display".
"""

from functools import singledispatch


@singledispatch
def as_text(shown: object) -> str | None:
    """As text for a terminal."""
    del shown


@singledispatch
def as_svg(shown: object) -> str | None:
    """As an SVG image."""
    del shown
