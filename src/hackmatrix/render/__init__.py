"""Positions for people to look at."""

from hackmatrix.render.text import text

__all__ = ["text"]
