"""Pictures of states, and episodes as text, as pages and as GIFs.

An environment may have a method ``draw(state, timestep)``, which gets what ``reset`` or ``step``
returned, and returns a :data:`Picture`: text, an :class:`Svg`, or an array of colors. The command
``watch`` plays an episode as :class:`Frame` objects, and shows their pictures.
"""

from ._frames import Decision, Frame, Picture, Svg, draw
from ._gif import animate, film, pillow
from ._page import html, page

__all__ = [
    "Decision",
    "Frame",
    "Picture",
    "Svg",
    "animate",
    "draw",
    "film",
    "html",
    "page",
    "pillow",
]
