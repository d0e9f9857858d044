"""HackMatrix, a turn-based roguelike on a 6×6 grid, as a ``ppo_mask`` environment."""

from jaxtyping import install_import_hook

install_import_hook("hackmatrix", "beartype.beartype")

from hackmatrix.env import HackMatrix  # noqa: E402 - the hook comes first
from hackmatrix.state import State  # noqa: E402

__all__ = ["HackMatrix", "State"]
