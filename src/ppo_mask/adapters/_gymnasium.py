"""The common parts of ``ToGymnasium`` and ``ToGymnasiumVector``."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jaxtyping import Bool, Int

from ppo_mask.adapters._driver import Driver
from ppo_mask.adapters._spaces import make_observation_space
from ppo_mask.envs import AbstractEnv, VectorEnv
from ppo_mask.envs.actions import Actions, NumActions

try:
    import gymnasium
except ImportError as error:
    raise ImportError(
        f"Gymnasium cannot be imported ({error}); install it with pip install 'ppo-mask[gymnasium]'"
    ) from error

__all__ = ["AbstractGymnasiumEnv", "Renderers", "check_actions", "gymnasium"]


def check_actions(actions: Any, num_actions: NumActions, *batch: int) -> Int[np.ndarray, "..."]:
    """Checks the shape ``[*batch, *parts]``, type and range of actions; converts them to int32."""
    actions = np.asarray(actions)
    shape = [*batch, *Actions.of(num_actions).shape]
    if list(actions.shape) != shape or not np.issubdtype(actions.dtype, np.integer):
        got = f"{actions.dtype}{list(actions.shape)}"
        raise ValueError(f"actions must be whole numbers of shape {shape}, got {got}")
    most = np.array(num_actions) - 1
    fit = ((actions >= 0) & (actions <= most)).reshape(*batch, -1).all(axis=-1)
    if not fit.all():
        raise ValueError(f"actions are 0 to {most.tolist()}, got {actions[~fit][0].tolist()}")
    return actions.astype(np.int32)


Renderers = Mapping[str, Callable[[Any], Any]]
"""For each render mode, the function that makes a frame from a state."""


class AbstractGymnasiumEnv:
    """Stepping, masks and render modes, for one environment or a vector.

    The class has no ``__init__``, since subclasses also inherit from Gymnasium's classes.
    """

    env: AbstractEnv[Any]
    metadata: dict[str, Any]
    render_mode: str | None
    _driver: Driver
    _mask: Bool[np.ndarray, "*envs actions"] | None
    _renderers: Renderers

    def _set_up(
        self,
        env: AbstractEnv[Any] | VectorEnv[Any],
        observation_space: gymnasium.Space[Any] | None,
        renderers: Renderers,
        render_mode: str | None,
        render_fps: int,
    ) -> tuple[Any, Any]:
        """Sets the attributes; returns the observation and action spaces of one environment."""
        if render_mode is not None and render_mode not in renderers:
            known = ", ".join(renderers) or "none"
            raise ValueError(f"render_mode must be one of {known}; got {render_mode!r}")
        self.env = env.env if isinstance(env, VectorEnv) else env
        self.metadata = {"render_modes": list(renderers), "render_fps": render_fps}
        self.render_mode = render_mode
        self._renderers = renderers
        self._driver = Driver(env)
        self._mask = None
        spaces, count, actions = gymnasium.spaces, env.num_actions, Actions.of(env.num_actions)
        return (
            observation_space or make_observation_space(self.env, spaces),
            spaces.MultiDiscrete(count) if actions.has_parts else spaces.Discrete(count),
        )

    def action_masks(self) -> Bool[np.ndarray, "*envs actions"]:
        """Returns which actions are allowed now; sb3-contrib's ``MaskablePPO`` calls this.

        Returns:
            A copy of the mask, ``[actions]``, or ``[envs, actions]`` for a vector. If actions are
            MultiDiscrete, the masks of the parts are concatenated. After the end of an episode, a
            single environment's mask is all True; a vector has already started the next episode,
            and returns its mask.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return self._require_reset("action_masks").copy()

    def _require_reset(self, caller: str) -> Bool[np.ndarray, "*envs actions"]:
        """Returns the current mask; raises an error before the first reset."""
        if self._mask is None:
            raise gymnasium.error.ResetNeeded(f"call reset before {caller}")
        return self._mask

    def _can_render(self, maker: str) -> bool:
        if self.render_mode is None:
            gymnasium.logger.warn(f"render does nothing without a render_mode; {maker} takes one")
            return False
        self._require_reset("render")
        return True
