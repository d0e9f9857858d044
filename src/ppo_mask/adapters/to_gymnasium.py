"""Any environment as one of Gymnasium (Towers et al. 2024, https://gymnasium.farama.org)."""

import operator
from typing import Any, final

import numpy as np
from jaxtyping import Bool

from ppo_mask.adapters._driver import Driver, Packed
from ppo_mask.adapters._gymnasium import SPACES, Renderers, begun, gymnasium, render_metadata
from ppo_mask.adapters._spaces import observation_space as space_of
from ppo_mask.envs import AbstractEnv, TimeStep
from ppo_mask.jax_tools import ArrayTree


@final
class ToGymnasium(gymnasium.Env[Any, Any]):
    """One environment for libraries that take Gymnasium's.

    Observations and infos are NumPy's arrays and Python's numbers. ``action_masks()`` is what
    sb3-contrib's ``MaskablePPO`` looks for. A step is one call into compiled code and one transfer
    back; environments that differ in the values of arrays alone share what is compiled.

    Episodes are drawn from ``np_random``: ``reset(seed=...)`` begins a sequence of episodes that is
    always the same, and ``reset()`` goes on in it.

    Attributes:
        env: the environment.
        metadata: the render modes there are.
        render_mode: the one to use, or None.
        observation_space: of what is seen.
        action_space: of actions, allowed or not.
    """

    def __init__(
        self,
        env: AbstractEnv[Any],
        *,
        observation_space: gymnasium.Space[Any] | None = None,
        renderers: Renderers | None = None,
        render_mode: str | None = None,
        render_fps: int = 4,
    ) -> None:
        """Compiles nothing yet; the first reset and the first step do.

        Args:
            env: the environment.
            observation_space: with the limits of what is seen; by default those of the dtypes.
            renderers: for each render mode, what makes a frame of a state. The one for ``human``
                shows it itself, and is called after every reset and step.
            render_mode: one of them.
            render_fps: frames a second, for films.

        Raises:
            ValueError: there is no such render mode.
            TypeError: no observation space is given and none can be made.
        """
        self.env = env
        self._renderers = renderers or {}
        self.metadata = render_metadata(self._renderers, render_mode, render_fps)
        self.render_mode = render_mode
        self.observation_space = observation_space or space_of(env, SPACES)
        self.action_space = gymnasium.spaces.Discrete(env.num_actions)
        self._driver = Driver(env, _parts)
        self._mask: Bool[np.ndarray, " actions"] | None = None
        self._ended = False

    @property
    def state(self) -> ArrayTree:
        """The environment's own, between two steps.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        begun(self._mask, "state")
        return self._driver.state

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode.

        Args:
            seed: of this episode and those that follow; by default they go on in their sequence.
            options: ignored; there are none.

        Returns:
            The observation, and the info.
        """
        super().reset(seed=seed)
        observation, self._mask, _, _, _, info = self._driver.reset(self.np_random).unpacked()
        self._ended = False
        if self.render_mode == "human":
            self._renderers["human"](self._driver.state)
        return observation, info

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Takes an action, allowed or not: what one that is not does, the environment says.

        Args:
            action: a whole number.

        Returns:
            The observation, the reward, whether the episode was terminated, whether it was
            truncated, and the info.

        Raises:
            ValueError: it is no action's number.
            gymnasium.error.ResetNeeded: no episode is going on.
        """
        begun(self._mask, "step")
        if self._ended:
            raise gymnasium.error.ResetNeeded("the episode has ended; call reset before step")
        number = operator.index(action)
        if not 0 <= number < self.env.num_actions:
            raise ValueError(f"actions are 0 to {self.env.num_actions - 1}, got {number}")
        parts = self._driver.step(np.int32(number)).unpacked()
        observation, self._mask, reward, terminated, truncated, info = parts
        self._ended = terminated or truncated
        if self.render_mode == "human":
            self._renderers["human"](self._driver.state)
        return observation, reward, terminated, truncated, info

    def action_masks(self) -> Bool[np.ndarray, " actions"]:
        """True where an action is allowed now; all True where the episode has ended.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return begun(self._mask, "action_masks").copy()

    def render(self) -> Any:
        """A frame, of the kind that ``render_mode`` says; None for ``human``, which shows itself.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render does nothing without a render_mode; make takes one")
            return None
        begun(self._mask, "render")
        if self.render_mode == "human":
            return None
        return self._renderers[self.render_mode](self._driver.state)


def _parts(timestep: TimeStep) -> Packed:
    return Packed(
        (
            timestep.observation,
            timestep.action_mask,
            timestep.reward,
            timestep.terminated,
            timestep.truncated,
            timestep.info,
        )
    )
