"""HackMatrix, a turn-based roguelike on a 6×6 grid, as a ``ppo_mask`` environment.

The package re-implements a game that the docstrings call *the original game*. Where Gymnasium is
installed, importing it registers ``HackMatrix-v0``: ``gymnasium.register_envs(hackmatrix)``.
"""

from ppo_mask.jax_tools import check_types as _check_types

_check_types("hackmatrix", but="hackmatrix.rules.plain")

from hackmatrix._registration import register as _register  # noqa: E402

_register()

from hackmatrix import render as render  # noqa: E402 - after the hook; lets states draw themselves
from hackmatrix.env import HackMatrix  # noqa: E402
from hackmatrix.rules.rewards import Shaping  # noqa: E402
from hackmatrix.rules.starts import HeadStart  # noqa: E402
from hackmatrix.rules.state import State  # noqa: E402

__all__ = ["HackMatrix", "HeadStart", "Shaping", "State"]
