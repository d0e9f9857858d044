"""Drawings of positions and games.

:mod:`hackmatrix.render.scene` decides what a person may see; the other modules draw the result.
Importing this package lets states show themselves as text and as SVG
(:mod:`hackmatrix.rules.state`).
"""

from hackmatrix.render.page import page
from hackmatrix.render.scene import Scene, describe, scene
from hackmatrix.render.svg import svg
from hackmatrix.render.text import text

__all__ = ["Scene", "describe", "page", "scene", "svg", "text"]
