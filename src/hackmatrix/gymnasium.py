"""HackMatrix for Gymnasium: importing this module registers ``HackMatrix-v0``.

``gymnasium.make("hackmatrix.gymnasium:HackMatrix-v0")`` imports it by itself. (Gymnasium 1.0 and
newer look for no plugins of installed packages: without either, a name is not known.)
"""

# First, for it says what to install where Gymnasium is missing.
from ppo_mask.adapters.to_gymnasium import ToGymnasium

# isort: split
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike

from hackmatrix.env import MIN_UNDO_DEPTH, HackMatrix
from hackmatrix.observation import bounds
from hackmatrix.render.picture import pixels
from hackmatrix.render.scene import scene
from hackmatrix.render.sheet import ALL_CARD_ROWS, sheet
from hackmatrix.render.text import colored, text
from hackmatrix.rules.state import State
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector

ID = "HackMatrix-v0"
"""The name that is registered."""


def make_env(
    *,
    max_steps: int | None = None,
    undo_depth: int = MIN_UNDO_DEPTH,
    starting_weights: ArrayLike | None = None,
    render_mode: str | None = None,
) -> ToGymnasium:
    """What ``gymnasium.make`` calls.

    Args:
        max_steps: see :class:`hackmatrix.HackMatrix`, as the two that follow.
        undo_depth: likewise.
        starting_weights: likewise.
        render_mode: ``ansi`` for text, ``rgb_array`` for pictures (they need Pillow, the extra
            ``gif``), ``human`` for text in the terminal after each reset and step; None for none.

    Raises:
        ValueError: a parameter is out of its range, or there is no such render mode.
    """
    game = _game(max_steps, undo_depth, starting_weights)
    return ToGymnasium(
        game, observation_space=_space(), renderers=_RENDERERS, render_mode=render_mode
    )


def make_vector_env(
    num_envs: int = 1,
    *,
    max_steps: int | None = None,
    max_episode_steps: int | None = None,
    undo_depth: int = MIN_UNDO_DEPTH,
    starting_weights: ArrayLike | None = None,
    render_mode: str | None = None,
) -> ToGymnasiumVector:
    """What ``gymnasium.make_vec`` calls.

    Args:
        num_envs: how many games.
        max_steps: see :func:`make_env`.
        max_episode_steps: the same, by the name that ``gymnasium.make`` has for it; the lower of
            the two is the limit.
        undo_depth: see :func:`make_env`.
        starting_weights: likewise.
        render_mode: ``ansi``, ``rgb_array``, or None.

    Raises:
        ValueError: a parameter is out of its range, or there is no such render mode.
    """
    limits = [limit for limit in (max_steps, max_episode_steps) if limit is not None]
    game = _game(min(limits, default=None), undo_depth, starting_weights)
    return ToGymnasiumVector(
        game, num_envs, observation_space=_space(), renderers=_RENDERERS, render_mode=render_mode
    )


def _game(max_steps: int | None, undo_depth: int, starting_weights: ArrayLike | None) -> HackMatrix:
    weights = None if starting_weights is None else jnp.asarray(starting_weights, jnp.float32)
    return HackMatrix(undo_depth, max_steps, weights)


def _space() -> gymnasium.spaces.Box:
    low, high = bounds()
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def _pixels(state: State) -> UInt8[np.ndarray, "height width 3"]:
    # One size for all the pictures of a film.
    return pixels(sheet(scene(state), card_rows=ALL_CARD_ROWS))


def _print(state: State) -> None:
    print(text(state, color=colored()), end="\n\n", flush=True)


_RENDERERS: dict[str, Any] = {"ansi": text, "rgb_array": _pixels, "human": _print}
# gymnasium.make reads it of what it calls: modes such as rgb_array_list are its own work.
make_env.metadata = {"render_modes": [*_RENDERERS]}  # pyright: ignore[reportFunctionMemberAccess]

gymnasium.register(
    ID,
    entry_point="hackmatrix.gymnasium:make_env",
    vector_entry_point="hackmatrix.gymnasium:make_vector_env",
)
