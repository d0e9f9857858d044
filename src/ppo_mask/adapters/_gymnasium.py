"""Gymnasium, or what to install; and what both of its kinds of environments are made with."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool

from ppo_mask.adapters._spaces import Spaces

try:
    import gymnasium
except ImportError as error:
    raise ImportError(
        f"Gymnasium cannot be imported ({error}); install it with pip install 'ppo-mask[gymnasium]'"
    ) from error

__all__ = ["SPACES", "Renderers", "begun", "gymnasium", "render_metadata"]

Renderers = Mapping[str, Callable[[Any], Any]]
"""For each render mode, what makes a frame of a state."""


SPACES = Spaces(gymnasium.spaces.Box, gymnasium.spaces.Dict, gymnasium.spaces.Tuple)
"""For :func:`ppo_mask.adapters._spaces.observation_space`."""


def render_metadata(renderers: Renderers, render_mode: str | None, fps: int) -> dict[str, Any]:
    """What Gymnasium wants to know of render modes.

    Raises:
        ValueError: the mode is not one of them.
    """
    if render_mode is not None and render_mode not in renderers:
        known = ", ".join(renderers) or "none"
        raise ValueError(f"render_mode must be one of {known}; got {render_mode!r}")
    return {"render_modes": list(renderers), "render_fps": fps}


def begun(
    mask: Bool[np.ndarray, "*envs actions"] | None, what: str
) -> Bool[np.ndarray, "*envs actions"]:
    """The mask of what may be done now; there is none before the first reset.

    Raises:
        gymnasium.error.ResetNeeded: there is none, and ``what`` needs it.
    """
    if mask is None:
        raise gymnasium.error.ResetNeeded(f"call reset before {what}")
    return mask
