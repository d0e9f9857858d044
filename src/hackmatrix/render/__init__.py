"""Positions and games for people to look at.

:mod:`hackmatrix.render.scene` says what is seen; everything else here only draws that. Once this
is imported, positions and replays show themselves (:mod:`hackmatrix.rules.state`).
"""

from hackmatrix.render.page import page
from hackmatrix.render.scene import Scene, describe, scene
from hackmatrix.render.svg import svg
from hackmatrix.render.text import text

__all__ = ["Scene", "describe", "page", "scene", "svg", "text"]
