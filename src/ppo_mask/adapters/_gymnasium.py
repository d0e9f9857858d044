"""Gymnasium, or what to install; and what both of its kinds of environments are made with."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from jaxtyping import PyTree

from ppo_mask.env import AbstractEnv

try:
    import gymnasium
except ImportError as error:
    raise ImportError(
        "Gymnasium is not installed; install it with pip install 'ppo-mask[gymnasium]'"
    ) from error

__all__ = ["Renderers", "gymnasium", "render_metadata", "space_of"]

Renderers = Mapping[str, Callable[[Any], Any]]
"""For each render mode, what makes a frame of a state."""


def space_of(env: AbstractEnv[Any]) -> gymnasium.Space[Any]:
    """The space of an environment's observations; of numbers, as wide as their dtype.

    Raises:
        TypeError: observations are no tree of arrays, dicts, lists and tuples.
    """
    _, timestep = jax.eval_shape(lambda: env.reset(jax.random.key(0)))
    return _space(timestep.observation)


def _space(shapes: PyTree[Any]) -> gymnasium.Space[Any]:
    if isinstance(shapes, dict):
        return gymnasium.spaces.Dict({name: _space(part) for name, part in shapes.items()})
    if isinstance(shapes, list | tuple):
        return gymnasium.spaces.Tuple([_space(part) for part in shapes])
    if not isinstance(shapes, jax.ShapeDtypeStruct):
        raise TypeError(
            f"observations hold a {type(shapes).__name__}; Gymnasium's spaces are of arrays, "
            "dicts, lists and tuples"
        )
    dtype: Any = np.dtype(shapes.dtype)
    if np.issubdtype(dtype, np.floating):
        return gymnasium.spaces.Box(-np.inf, np.inf, shapes.shape, dtype)
    limits = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    return gymnasium.spaces.Box(*map(int, limits), shapes.shape, dtype)


def render_metadata(renderers: Renderers, render_mode: str | None, fps: int) -> dict[str, Any]:
    """What Gymnasium wants to know of render modes.

    Raises:
        ValueError: the mode is not one of them.
    """
    if render_mode is not None and render_mode not in renderers:
        known = ", ".join(renderers) or "none"
        raise ValueError(f"render_mode must be one of {known}; got {render_mode!r}")
    return {"render_modes": list(renderers), "render_fps": fps}
