"""Drawings as pictures and films, by Pillow (the extra ``gif``)."""

from collections.abc import Iterable
from io import BytesIO
from typing import TYPE_CHECKING, Any

from hackmatrix.render.shapes import Disc, Drawing, Label, Length, Polygon, Shape
from ppo_mask.errors import RunError

if TYPE_CHECKING:
    from PIL.Image import Image

# Drawn so much larger and then made smaller: Pillow draws no smooth edges of its own.
_OVERSAMPLING = 2
_COLORS = 48


def png(drawing: Drawing, width: int = 480) -> bytes:
    """A drawing as a PNG image ``width`` pixels wide.

    Raises:
        RunError: Pillow is not installed.
    """
    out = BytesIO()
    _painted(drawing, width).save(out, "png", optimize=True)
    return out.getvalue()


def gif(drawings: Iterable[Drawing], fps: Length = 4.0, width: int = 420) -> bytes:
    """Drawings of one size as an animated GIF that begins again; the last stays for 3 s.

    Raises:
        RunError: Pillow is not installed.
        ValueError: there is no drawing.
    """
    frames = [_painted(drawing, width).quantize(_COLORS) for drawing in drawings]
    if not frames:
        raise ValueError("a film needs at least one drawing")
    durations = [round(1000 / fps)] * (len(frames) - 1) + [3000]
    out = BytesIO()
    frames[0].save(
        out,
        "gif",
        save_all=True,
        append_images=frames[1:],
        duration=durations,
        loop=0,
        optimize=True,
    )
    return out.getvalue()


def _painted(drawing: Drawing, width: int) -> "Image":
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise RunError(
            "pictures need Pillow; install it with pip install 'ppo-mask[gif]'"
        ) from error
    scale = _OVERSAMPLING * width / drawing.width
    size = (_OVERSAMPLING * width, round(scale * drawing.height))
    image = Image.new("RGB", size, drawing.background)
    brush = ImageDraw.Draw(image)
    for x, y, shape in drawing.flat():
        _paint(brush, shape, x, y, scale)
    small = (width, round(size[1] / _OVERSAMPLING))
    return image.resize(small, Image.Resampling.LANCZOS)


def _paint(brush: Any, shape: Shape, dx: Length, dy: Length, scale: float) -> None:
    def at(x: Length, y: Length) -> tuple[float, float]:
        return scale * (x + dx), scale * (y + dy)

    if isinstance(shape, Label):
        from PIL import ImageFont

        font = ImageFont.load_default(scale * shape.size)
        anchor = "mm" if shape.centred else "lm"
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
