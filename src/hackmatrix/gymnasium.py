"""HackMatrix in Gymnasium, as ``HackMatrix-v0``; importing ``hackmatrix`` registers it.

>>> gymnasium.register_envs(hackmatrix)  # doctest: +SKIP
>>> env = gymnasium.make("HackMatrix-v0", max_steps=200)  # doctest: +SKIP
"""

# Imported first: if Gymnasium is missing, its error says what to install.
from ppo_mask.adapters.to_gymnasium import ToGymnasium

# isort: split
from typing import Any

import gymnasium
import jax.numpy as jnp
import numpy as np
from jaxtyping import UInt8
from numpy.typing import ArrayLike

from hackmatrix._registration import ID as _ID, register
from hackmatrix.env import MIN_UNDO_DEPTH, HackMatrix
from hackmatrix.observation import bounds
from hackmatrix.render.picture import pixels
from hackmatrix.render.scene import scene
from hackmatrix.render.sheet import rows_of, sheet
from hackmatrix.render.text import colored, text
from hackmatrix.rules.programs import NUM_PROGRAMS
from hackmatrix.rules.state import State
from ppo_mask.adapters.to_gymnasium_vector import ToGymnasiumVector

ID = _ID
"""The name by which Gymnasium knows the game."""


def make_env(
    *,
    max_steps: int | None = None,
    undo_depth: int = MIN_UNDO_DEPTH,
    starting_weights: ArrayLike | None = None,
    render_mode: str | None = None,
) -> ToGymnasium:
    """Makes one game; ``gymnasium.make`` calls it.

    Args:
        max_steps: see :class:`hackmatrix.HackMatrix`.
        undo_depth: positions that UNDO can go back through in a stage.
        starting_weights: ``[stages]``, the relative frequency of each starting stage.
        render_mode: ``ansi`` for text, ``rgb_array`` for pictures (they need Pillow, the extra
            ``gif``), ``human`` for text in the terminal after each reset and step; None for none.

    Returns:
        The game, whose observations are float32 ``[1545]``.

    Raises:
        ValueError: an argument is out of its range, or the render mode is unknown.
    """
    game = _make_game(max_steps, undo_depth, starting_weights)
    return ToGymnasium(game, **_SEEN, renderers=_RENDERERS, render_mode=render_mode)


def make_vector_env(
    num_envs: int = 1,
    *,
    max_steps: int | None = None,
    max_episode_steps: int | None = None,
    undo_depth: int = MIN_UNDO_DEPTH,
    starting_weights: ArrayLike | None = None,
) -> ToGymnasiumVector:
    """Makes many games in one compiled program; ``gymnasium.make_vec`` calls it.

    Args:
        num_envs: the number of games.
        max_steps: see :class:`hackmatrix.HackMatrix`.
        max_episode_steps: Gymnasium's name for ``max_steps``; the lower of the two is the limit.
        undo_depth: see :class:`hackmatrix.HackMatrix`.
        starting_weights: see :class:`hackmatrix.HackMatrix`.

    Returns:
        The games, whose observations are float32 ``[num_envs, 1545]``.

    Raises:
        ValueError: an argument is out of its range.
    """
    limits = [limit for limit in (max_steps, max_episode_steps) if limit is not None]
    game = _make_game(min(limits, default=None), undo_depth, starting_weights)
    return ToGymnasiumVector(game, num_envs, **_SEEN)


def _make_game(
    max_steps: int | None, undo_depth: int, starting_weights: ArrayLike | None
) -> HackMatrix:
    if starting_weights is None:
        return HackMatrix(undo_depth, max_steps)
    return HackMatrix(undo_depth, max_steps, jnp.asarray(starting_weights, jnp.float32))


def _make_pixels(state: State) -> UInt8[np.ndarray, "height width 3"]:
    # All pictures of a recording must have the same size.
    return pixels(sheet(scene(state), card_rows=rows_of(NUM_PROGRAMS)))


def _print(state: State) -> None:
    print(text(state, color=colored()), end="\n\n", flush=True)


_RENDERERS: dict[str, Any] = {"ansi": text, "rgb_array": _make_pixels, "human": _print}
_SEEN: dict[str, Any] = {"observation_space": gymnasium.spaces.Box(*bounds(), dtype=np.float32)}
# gymnasium.make reads these modes, and derives others such as rgb_array_list.
make_env.metadata = {"render_modes": [*_RENDERERS]}  # pyright: ignore[reportFunctionMemberAccess]

register()  # Also where Gymnasium was found in a way that the package does not see.
