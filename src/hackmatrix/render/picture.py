"""Drawings as PNG and GIF, made by Pillow (the extra ``gif``)."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from hackmatrix.render.shapes import Disc, Drawing, Label, Length, Polygon, Shape
from ppo_mask.envs.drawing import animate, pillow

if TYPE_CHECKING:
    from PIL.Image import Image

# Pictures are drawn this many times larger and scaled down, as Pillow does not smooth edges.
_OVERSAMPLING = 2
_PALETTE = 256
_GROUNDS = 2  # how many of the darkest colors to blend edges into


def png(drawing: Drawing, width: int = 480) -> bytes:
    """A drawing as a PNG image ``width`` pixels wide.

    Raises:
        RunError: Pillow is not installed.
    """
    out = BytesIO()
    _painted(drawing, width).save(out, "png", optimize=True)
    return out.getvalue()


def pixels(drawing: Drawing, width: int = 480) -> UInt8[np.ndarray, "height width 3"]:
    """A drawing as an array of red, green and blue, ``width`` pixels wide.

    Raises:
        RunError: Pillow is not installed.
    """
    return np.array(_painted(drawing, width))


def gif(drawings: Sequence[Drawing], fps: Length = 4.0, width: int = 420) -> bytes:
    """Drawings of one size as an endless animated GIF; the last drawing stays for 3 s.

    Raises:
        RunError: Pillow is not installed.
        ValueError: there is no drawing.
    """
    if not drawings:
        raise ValueError("a GIF needs at least one drawing")
    image_module, _ = pillow()
    palette = _palette(drawings)
    # One palette for all frames, so that each frame stores only its changes.
    frames = [
        _painted(drawing, width).quantize(palette=palette, dither=image_module.Dither.NONE)
        for drawing in drawings
    ]
    return animate(frames, fps)


def _palette(drawings: Sequence[Drawing]) -> "Image":
    """The colors of the drawings, and those of their smooth edges."""
    image, _ = pillow()
    shapes = [shape for drawing in drawings for _, _, shape in drawing.flat()]
    strokes = [shape.stroke for shape in shapes if not isinstance(shape, Label)]
    names = {drawings[0].background, *(shape.fill for shape in shapes), *strokes} - {""}
    colors = np.array([[int(name[i : i + 2], 16) for i in (1, 3, 5)] for name in sorted(names)])
    dark = colors[colors.sum(axis=1).argsort()[:_GROUNDS]]
    mixed = [s * colors[:, None] + (1 - s) * dark[None] for s in (0.7, 0.4)]
    entries = np.concatenate([colors, *(x.reshape(-1, 3) for x in mixed)]).round()
    palette = image.new("P", (1, 1))
    palette.putpalette(entries.astype(np.uint8)[:_PALETTE].tobytes())
    return palette


def _painted(drawing: Drawing, width: int) -> "Image":
    image_module, draw_module = pillow()
    scale = _OVERSAMPLING * width / drawing.width
    size = (_OVERSAMPLING * width, round(scale * drawing.height))
    image = image_module.new("RGB", size, drawing.background)
    brush = draw_module.Draw(image)
    for x, y, shape in drawing.flat():
        _paint(brush, shape, x, y, scale)
    small = (width, round(size[1] / _OVERSAMPLING))
    return image.resize(small, image_module.Resampling.LANCZOS)


def _paint(brush: Any, shape: Shape, dx: Length, dy: Length, scale: float) -> None:
    def at(x: Length, y: Length) -> tuple[float, float]:
        return scale * (x + dx), scale * (y + dy)

    if isinstance(shape, Label):
        from PIL import ImageFont

        font = ImageFont.load_default(scale * shape.size)
        anchor = "mm" if shape.centered else "lm"
        brush.text(at(shape.x, shape.y), shape.text, shape.fill, font=font, anchor=anchor)
        return
    paint: dict[str, Any] = {"fill": shape.fill or None, "outline": shape.stroke or None}
    paint["width"] = max(1, round(scale * shape.width)) if shape.stroke else 0
    if isinstance(shape, Disc):
        brush.circle(at(shape.x, shape.y), scale * shape.r, **paint)
    elif isinstance(shape, Polygon):
        brush.polygon([at(*point) for point in shape.points], **paint)
    else:
        corners = [*at(shape.x, shape.y), *at(shape.x + shape.w, shape.y + shape.h)]
        brush.rounded_rectangle(corners, scale * shape.radius, **paint)
