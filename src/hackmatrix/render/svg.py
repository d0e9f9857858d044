"""Drawings as SVG, without styles, scripts or fonts."""

from html import escape

from hackmatrix.render.scene import scene
from hackmatrix.render.shapes import Box, Disc, Drawing, Group, Label, Polygon, Shape
from hackmatrix.render.sheet import sheet
from hackmatrix.rules.state import State, as_svg

FONT = "ui-sans-serif,system-ui,Segoe UI,Helvetica,Arial,sans-serif"


def svg(state: State, *, reveal: bool = False) -> str:
    """A state as one SVG image; each cell's ``<title>`` says in words what is on the cell.

    Raises:
        ValueError: the state has a leading axis.
    """
    return drawn(sheet(scene(state, reveal=reveal)))


as_svg.register(State, svg)


def drawn(drawing: Drawing) -> str:
    """A drawing as an SVG image."""
    size = f"{drawing.width:g} {drawing.height:g}"
    parts = [group(x) if isinstance(x, Group) else shape(x) for x in drawing.parts]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" role="img" '
        f'width="{drawing.width:g}" height="{drawing.height:g}" style="max-width:100%;height:auto" '
        f'font-family="{FONT}" font-weight="600"><title>{escape(drawing.title)}</title>'
        f'<rect width="100%" height="100%" fill="{drawing.background}"/>{"".join(parts)}</svg>'
    )


def group(each: Group) -> str:
    """Draws a group at its place."""
    return f'<g transform="translate({each.x:g} {each.y:g})">{inside(each)}</g>'


def inside(each: Group) -> str:
    """A group's title and shapes as SVG, without the group's offset."""
    title = f"<title>{escape(each.title)}</title>" if each.title else ""
    return title + "".join(map(shape, each.shapes))


def shape(each: Shape) -> str:
    """Draws one shape."""
    if isinstance(each, Label):
        anchor = ' text-anchor="middle"' if each.centered else ""
        # The middle of capital letters is about a third of the font's size above the baseline.
        y = each.y + 0.35 * each.size
        return (
            f'<text x="{each.x:g}" y="{y:g}" font-size="{each.size:g}" fill="{each.fill}"{anchor} '
            f'xml:space="preserve">{escape(each.text)}</text>'
        )
    paint = f'fill="{each.fill or "none"}"'
    if each.stroke:
        paint += f' stroke="{each.stroke}" stroke-width="{each.width:g}"'
    if isinstance(each, Disc):
        return f'<circle cx="{each.x:g}" cy="{each.y:g}" r="{each.r:g}" {paint}/>'
    if isinstance(each, Polygon):
        points = " ".join(f"{x:g},{y:g}" for x, y in each.points)
        return f'<polygon points="{points}" {paint}/>'
    return _box(each, paint)


def _box(each: Box, paint: str) -> str:
    corner = f' rx="{each.radius:g}"' if each.radius else ""
    return (
        f'<rect x="{each.x:g}" y="{each.y:g}" width="{each.w:g}" height="{each.h:g}"{corner} '
        f"{paint}/>"
    )
