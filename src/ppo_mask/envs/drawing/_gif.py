"""Pictures as an animated GIF, made by Pillow (the extra ``gif``)."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from ppo_mask.envs.drawing._frames import Frame, likeliest, name_action
from ppo_mask.errors import RunError

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH, _PANEL, _LINE, _MARGIN = 420, 190, 22, 10
_BACKGROUND, _INK, _DIM, _GROUND, _BAR = "#111823", "#e8edf4", "#667386", "#263143", "#2dd4bf"


def pillow() -> tuple[Any, Any]:
    """Imports Pillow's modules ``Image`` and ``ImageDraw``.

    Raises:
        RunError: Pillow is not installed.
    """
    try:
        from PIL import Image, ImageDraw
    except ImportError as error:
        raise RunError(
            "pictures need Pillow; install it with pip install 'ppo-mask[gif]'"
        ) from error
    return Image, ImageDraw


def as_image(pixels: UInt8[np.ndarray, "height width 3"], width: int) -> "Image":
    """Scales an array to an image that is ``width`` pixels wide; the pixels of a small one show."""
    image_module, _ = pillow()
    image = image_module.fromarray(np.ascontiguousarray(pixels))
    resampling = image_module.Resampling
    how = resampling.NEAREST if 2 * image.width <= width else resampling.LANCZOS
    return image.resize((width, round(width * image.height / image.width)), how)


def animate(images: Sequence["Image"], fps: float) -> bytes:
    """Makes an endless animated GIF of images of one size; the last image stays for 3 s."""
    durations = [round(1000 / fps)] * (len(images) - 1) + [3000]
    out = BytesIO()
    images[0].save(
        out,
        "gif",
        save_all=True,
        append_images=images[1:],
        duration=durations,
        loop=0,
        optimize=True,
    )
    return out.getvalue()


def film(frames: Sequence[Frame], names: Sequence[str], fps: float) -> bytes:
    """Makes a GIF of an episode: each picture beside the policy's probabilities.

    Args:
        frames: the frames, whose scenes are pictures.
        names: the name of each action.
        fps: frames per second.

    Raises:
        RunError: a picture is not an array, or Pillow is not installed.
    """
    if not all(isinstance(frame.scene, np.ndarray) for frame in frames):
        raise RunError("a GIF needs pictures of pixels, and the environment draws none; use --html")
    height = as_image(frames[0].scene, _WIDTH).height + _LINE  # With room for a line of text,
    height += height % 2  # and even.
    shown = likeliest(frames, len(names), (height - _MARGIN) // _LINE)
    return animate([_beside(frame, names, shown, height) for frame in frames], fps)


def _beside(frame: Frame, names: Sequence[str], shown: Sequence[int], height: int) -> "Image":
    """Draws a frame's picture, the line below it, and a bar for each action beside it."""
    image_module, draw_module = pillow()
    from PIL import ImageFont

    font = ImageFont.load_default(13)
    image = image_module.new("RGB", (_WIDTH + _PANEL, height), _BACKGROUND)
    image.paste(as_image(frame.scene, _WIDTH))
    brush = draw_module.Draw(image)
    decision = frame.decision
    chosen = () if decision is None else np.atleast_1d(decision.action)
    for row, action in enumerate(shown):
        x, y = _WIDTH + _MARGIN, _MARGIN + row * _LINE
        color = _BAR if action in chosen else _INK if action in frame.allowed else _DIM
        share = 0.0 if decision is None else decision.probabilities[action]
        brush.text((x, y), names[action], color, font=font)
        start, end = x + 40, x + _PANEL - 2 * _MARGIN - 44
        brush.rectangle((start, y + 3, end, y + 12), _GROUND)
        brush.rectangle((start, y + 3, start + share * (end - start), y + 12), _BAR)
        text = f"{100 * share:.0f}%" if action in frame.allowed else "–"
        brush.text((end + 44, y), text, color, font=font, anchor="ra")
    told = f"step {frame.step}   return {frame.return_:.4g}"
    if frame.action is not None:
        told += f"   action {name_action(frame.action, names)}   {frame.end}"
    brush.text((_MARGIN, height - _LINE + 3), told, _INK, font=font)
    return image.quantize(method=image_module.Quantize.MAXCOVERAGE)  # Keeps rare colors.
