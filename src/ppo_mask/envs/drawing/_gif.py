"""Pictures as an animated GIF, made by Pillow (the extra ``gif``)."""

from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from jaxtyping import UInt8

from ppo_mask.envs.drawing._frames import Frame
from ppo_mask.errors import RunError

if TYPE_CHECKING:
    from PIL.Image import Image

_WIDTH = 420


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


def film(frames: Sequence[Frame], fps: float) -> bytes:
    """Makes a GIF of an episode's pictures.

    Args:
        frames: the frames, whose scenes are pictures.
        fps: frames per second.

    Raises:
        RunError: a picture is not an array, or Pillow is not installed.
    """
    if not all(isinstance(frame.scene, np.ndarray) for frame in frames):
        raise RunError("a GIF needs pictures of pixels, and the environment draws none; use --html")
    most = pillow()[0].Quantize.MAXCOVERAGE  # Keeps rare colors.
    return animate([as_image(x.scene, _WIDTH).quantize(method=most) for x in frames], fps)
