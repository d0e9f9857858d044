"""Adapts an environment to Gymnasium (Towers et al. 2024, https://gymnasium.farama.org)."""

from collections.abc import Callable, Mapping
from typing import Any, final

import jax
import numpy as np

from ppo_mask.adapters._gymnasium import AbstractGymnasiumEnv, check_actions, gymnasium
from ppo_mask.envs import AbstractEnv
from ppo_mask.jax_tools import ArrayTree


@final
class ToGymnasium(AbstractGymnasiumEnv, gymnasium.Env[Any, Any]):
    """An environment of this library as a ``gymnasium.Env``.

    Observations and infos hold NumPy arrays and Python numbers. A step is one call into compiled
    code. Environments that differ only in the values of their arrays share their compiled code.

    Randomness comes from ``np_random``: ``reset(seed=...)`` starts a sequence of episodes that
    depends only on the seed, and ``reset()`` starts the next episode of the sequence.

    For MultiDiscrete actions, the masks of the parts are concatenated, as sb3-contrib expects. If
    the masks of later parts depend on earlier parts, only :meth:`part_mask` says what is allowed
    there, and ``action_masks`` allows all in later parts.

    Attributes:
        env: the environment.
        metadata: the render modes, and frames per second.
        render_mode: the mode that ``render`` uses, or None.
        observation_space: the space of the observations.
        action_space: the space of all actions, allowed or not.

    Example:
        >>> from ppo_mask.envs.probes import MaskedLocks
        >>> env = ToGymnasium(MaskedLocks(keys=2))  # doctest: +SKIP
        >>> observation, info = env.reset(seed=0)  # doctest: +SKIP
        >>> env.action_masks().sum()  # doctest: +SKIP
        np.int64(2)
        >>> action = env.action_masks().argmax()  # doctest: +SKIP
        >>> observation, reward, terminated, truncated, info = env.step(action)  # doctest: +SKIP
    """

    def __init__(
        self,
        env: AbstractEnv[Any],
        *,
        observation_space: gymnasium.Space[Any] | None = None,
        renderers: Mapping[str, Callable[[Any], Any]] | None = None,
        render_mode: str | None = None,
        render_fps: int = 4,
    ) -> None:
        """Compiles nothing yet; the first reset and the first step compile.

        Args:
            env: the environment.
            observation_space: the space of the observations; None for a space that is bounded only
                by the arrays' dtypes.
            renderers: for each render mode, the function that makes a frame from a state. The
                function for ``human`` shows the frame, and is called after every reset and step.
            render_mode: one of the modes, or None.
            render_fps: frames per second, for videos.

        Raises:
            ValueError: ``renderers`` does not have the mode ``render_mode``.
            TypeError: ``observation_space`` is None and no space can be made.
        """
        self._renderers = dict(renderers or {})
        if render_mode is not None and render_mode not in self._renderers:
            known = ", ".join(self._renderers) or "none"
            raise ValueError(f"render_mode must be one of {known}; got {render_mode!r}")
        self.render_mode = render_mode
        self.metadata = {"render_modes": list(self._renderers), "render_fps": render_fps}
        self.observation_space, self.action_space = self._set_up(env, observation_space)
        self._ended = False

    @property
    def state(self) -> ArrayTree:
        """The environment's state after the last reset or step.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        self._require_reset("state")
        return self._state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode.

        Args:
            seed: starts a new sequence of episodes; None continues the current sequence.
            options: ignored.

        Returns:
            The observation and the info.
        """
        super().reset(seed=seed)
        observation, _, _, _, info, _ = self._begin(self.np_random)
        self._ended = False
        self._show()
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes an action. The environment decides the effect of an action outside the mask.

        Args:
            action: an integer from 0 to the number of actions minus 1; if MultiDiscrete, an integer
                for each part.

        Returns:
            The observation, the reward, whether the episode terminated, whether it was truncated,
            and the info.

        Raises:
            ValueError: the action is no integer, is out of range, or has a wrong number of parts.
            gymnasium.error.ResetNeeded: before the first reset, or after the end of an episode.
        """
        self._require_reset("step")
        if self._ended:
            raise gymnasium.error.ResetNeeded("the episode has ended; call reset before step")
        action = check_actions(action, self.env.num_actions)
        observation, reward, terminated, truncated, info, _ = self._take(action)
        self._ended = terminated or truncated
        self._show()
        return observation, reward, terminated, truncated, info

    def part_mask(self, prefix: Any, k: int) -> Any:
        """Returns which choices of part ``k`` are allowed after the choices before it.

        With it, ``policy(observation, env.action_masks(), part_mask=env.part_mask)`` acts.

        Args:
            prefix: the choices of the parts before part ``k``, of which each was allowed.
            k: the part, counted from 0.

        Returns:
            The mask ``[choices]``; None if ``action_masks`` has the masks of all parts.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        self._require_reset("part_mask")
        prefix = np.asarray(prefix, np.int32).reshape(k)
        return jax.device_get(self._program(_part_mask)(self._state, prefix))

    def render(self) -> Any:
        """Makes a frame of the current state.

        Returns:
            The frame, from the renderer of ``render_mode``. Mode ``human``, which shows a frame at
            every reset and step, returns None. Without a mode, ``render`` warns and returns None.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        self._require_reset("render")
        if self.render_mode is None:
            gymnasium.logger.warn("render does nothing without a render_mode; make takes one")
        if self.render_mode in (None, "human"):
            return None
        return self._renderers[self.render_mode](self._state)

    def _show(self) -> None:
        if self.render_mode == "human":
            self._renderers["human"](self._state)


def _part_mask(env: Any, state: Any, prefix: Any) -> Any:
    return env.part_mask(state, prefix, len(prefix))
