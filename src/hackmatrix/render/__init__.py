"""Drawings of positions and games.

:mod:`hackmatrix.render.scene` decides what is seen; everything else only draws that. Importing this
package gives states their text and their SVG image (:mod:`hackmatrix.rules.state`).
"""

from hackmatrix.render.page import page
from hackmatrix.render.scene import Scene, describe, scene
from hackmatrix.render.svg import svg
from hackmatrix.render.text import text

__all__ = ["Scene", "describe", "page", "scene", "svg", "text"]
