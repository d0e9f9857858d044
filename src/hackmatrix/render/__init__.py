"""Positions for people to look at.

:mod:`hackmatrix.render.scene` says what is seen; everything else here only draws that.
"""

from hackmatrix.render.scene import Scene, describe, scene
from hackmatrix.render.svg import svg
from hackmatrix.render.text import text

__all__ = ["Scene", "describe", "scene", "svg", "text"]
