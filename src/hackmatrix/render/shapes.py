"""A drawing as plain shapes, from which SVG and pictures are made.

x grows to the right, y downward. A label is centered on its point or begins at its point.
"""

from collections.abc import Iterator
from dataclasses import dataclass

Length = int | float


@dataclass(frozen=True)
class Polygon:
    """A filled polygon; an empty ``stroke`` means no outline."""

    points: tuple[tuple[Length, Length], ...]
    fill: str
    stroke: str = ""
    width: Length = 0


@dataclass(frozen=True)
class Box:
    """A filled rectangle with round corners; an empty ``fill`` draws only its outline."""

    x: Length
    y: Length
    w: Length
    h: Length
    fill: str
    radius: Length = 0
    stroke: str = ""
    width: Length = 0


@dataclass(frozen=True)
class Disc:
    """A filled circle; an empty ``fill`` draws only its outline."""

    x: Length
    y: Length
    r: Length
    fill: str
    stroke: str = ""
    width: Length = 0


@dataclass(frozen=True)
class Label:
    """One line of text; its middle is at height ``y``."""

    x: Length
    y: Length
    text: str
    size: Length
    fill: str
    centered: bool = True


Shape = Polygon | Box | Disc | Label


@dataclass(frozen=True)
class Group:
    """Shapes moved by ``x`` and ``y``, with a title."""

    x: Length
    y: Length
    title: str
    shapes: tuple[Shape, ...]


@dataclass(frozen=True)
class Drawing:
    """A whole drawing on a background."""

    width: Length
    height: Length
    background: str
    title: str
    parts: tuple[Group | Shape, ...]

    def flat(self) -> Iterator[tuple[Length, Length, Shape]]:
        """The shapes of all groups, each with its group's offset (x, y)."""
        for part in self.parts:
            if isinstance(part, Group):
                yield from ((part.x, part.y, shape) for shape in part.shapes)
            else:
                yield 0, 0, part
