"""A vector of environments as one of Gymnasium's."""

from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Bool, Float

from ppo_mask.adapters._driver import Driver
from ppo_mask.adapters._gymnasium import SPACES, Renderers, begun, gymnasium, render_metadata
from ppo_mask.adapters._spaces import observation_space as space_of
from ppo_mask.envs import AbstractEnv, VectorEnv, VectorTimeStep

_Flags = Bool[np.ndarray, " envs"]


@final
class ToGymnasiumVector(gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many environments in one compiled program, for libraries that take Gymnasium's.

    What ``ppo_mask.envs.VectorEnv`` does, in NumPy's arrays. Where an episode ends, the next
    begins in the same step (Gymnasium's ``AutoresetMode.SAME_STEP``): observation and mask are then
    the new episode's. What the step led to is in ``info["final_obs"]``, an array of objects with
    None where nothing ended, and the step's info in ``info["final_info"]``. A new episode has no
    info of its own before its first step: ``info["_<name>"]`` says, as ever, who has one.

    Attributes:
        env: one of the environments.
        num_envs: how many there are.
        metadata: the render modes there are, and the autoreset mode.
        render_mode: the one to use, or None.
        single_observation_space: of one environment.
        single_action_space: of one environment.
        observation_space: of all.
        action_space: of all.
    """

    def __init__(
        self,
        env: AbstractEnv[Any],
        num_envs: int,
        *,
        observation_space: gymnasium.Space[Any] | None = None,
        renderers: Renderers | None = None,
        render_mode: str | None = None,
        render_fps: int = 4,
    ) -> None:
        """Compiles nothing yet; the first reset and the first step do.

        Args:
            env: the environment.
            num_envs: how many of it, at least 1.
            observation_space: of one; see :class:`ppo_mask.adapters.to_gymnasium.ToGymnasium`.
            renderers: see there; they are given the state of one environment.
            render_mode: one of them, but not ``human``.
            render_fps: frames a second, for films.

        Raises:
            ValueError: there is no such render mode, or ``num_envs`` is below 1.
            TypeError: no observation space is given and none can be made.
        """
        self.env = env
        self.num_envs = num_envs
        self._renderers = {k: v for k, v in (renderers or {}).items() if k != "human"}
        self.metadata = render_metadata(self._renderers, render_mode, render_fps)
        self.metadata["autoreset_mode"] = gymnasium.vector.AutoresetMode.SAME_STEP
        self.render_mode = render_mode
        self.single_observation_space = observation_space or space_of(env, SPACES)
        self.single_action_space = gymnasium.spaces.Discrete(env.num_actions)
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, num_envs)
        self.action_space = batch(self.single_action_space, num_envs)
        self._driver = Driver(VectorEnv(env, num_envs), _whole)
        self._mask: Bool[np.ndarray, "envs actions"] | None = None

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Begins an episode in every environment.

        Args:
            seed: one for all of them; by default episodes go on in their sequence.
            options: ``reset_mask`` is refused, for episodes begin by themselves; others are
                ignored.

        Returns:
            The observations, and the infos.

        Raises:
            ValueError: some environments only are to be reset, or each by a seed of its own.
        """
        if options and "reset_mask" in options:
            raise ValueError("a reset_mask is for vectors without autoreset; this one resets all")
        if isinstance(seed, Sequence):
            raise ValueError(f"seed must be one whole number for all environments, got {seed!r}")
        super().reset(seed=seed)
        timestep: VectorTimeStep = self._driver.reset(self.np_random)
        observation, self._mask, info = _on_host(
            (timestep.observation, timestep.action_mask, timestep.info)
        )
        return observation, _marked(info, np.ones(self.num_envs, bool))

    def step(
        self, actions: Any
    ) -> tuple[Any, Float[np.ndarray, " envs"], _Flags, _Flags, dict[str, Any]]:
        """Takes an action in every environment.

        Args:
            actions: one whole number for each, allowed or not.

        Returns:
            Observations to act on next, and of the step: rewards (float64), where episodes were
            terminated, where truncated, and the infos.

        Raises:
            ValueError: there is not one action for each environment, or one is no action's number.
            gymnasium.error.ResetNeeded: before the first reset.
        """
        begun(self._mask, "step")
        actions = np.asarray(actions)
        count = self.env.num_actions
        if actions.shape != (self.num_envs,) or not np.issubdtype(actions.dtype, np.integer):
            raise ValueError(
                f"actions must be {self.num_envs} whole numbers, "
                f"got {actions.dtype}{list(actions.shape)}"
            )
        if actions.min() < 0 or actions.max() >= count:
            raise ValueError(
                f"actions are 0 to {count - 1}, got {actions.min()} to {actions.max()}"
            )
        timestep: VectorTimeStep = self._driver.step(actions.astype(np.int32))
        observation, self._mask, reward, terminated, truncated, step_info = _on_host(
            (
                timestep.observation,
                timestep.action_mask,
                timestep.reward,
                timestep.terminated,
                timestep.truncated,
                timestep.info,
            )
        )
        ended = terminated | truncated
        info = _marked(step_info, ~ended)
        if ended.any():
            info |= {
                "final_obs": _rows(jax.device_get(timestep.final_observation), ended),
                "final_info": _marked(step_info, ended),
                "_final_obs": ended,
                "_final_info": ended.copy(),
            }
        return observation, reward.astype(np.float64), terminated, truncated, info

    def action_masks(self) -> Bool[np.ndarray, "envs actions"]:
        """True where an action is allowed now.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        return begun(self._mask, "action_masks").copy()

    def render(self) -> tuple[Any, ...] | None:
        """A frame of each environment, of the kind that ``render_mode`` says.

        Raises:
            gymnasium.error.ResetNeeded: before the first reset.
        """
        if self.render_mode is None:
            gymnasium.logger.warn("render does nothing without a render_mode; make_vec takes one")
            return None
        begun(self._mask, "render")
        states = jax.device_get(self._driver.state.env_state)
        frame = self._renderers[self.render_mode]
        return tuple(frame(_row(states, number)) for number in range(self.num_envs))


def _whole(timestep: VectorTimeStep) -> VectorTimeStep:
    # A function of the module: what is compiled is shared by those of one output.
    return timestep


def _on_host(tree: Any) -> Any:
    """NumPy's arrays, of memory of their own."""
    return jax.tree.map(np.array, jax.device_get(tree))


def _row(tree: Any, number: Any) -> Any:
    return jax.tree.map(lambda x: x[number], tree)


def _rows(tree: Any, where: _Flags) -> Any:
    """An array of objects: rows of the tree, of memory of their own, and None elsewhere."""
    rows = np.full(len(where), None, dtype=object)
    for number in np.flatnonzero(where):
        rows[number] = jax.tree.map(np.array, _row(tree, number))
    return rows


def _marked(info: dict[str, Any], where: _Flags) -> dict[str, Any]:
    """Infos as Gymnasium has them: zero where an environment gives none, and who gives one."""
    marked: dict[str, Any] = {}
    for name, value in info.items():
        rows = where.reshape(-1, *[1] * (value.ndim - 1))
        marked |= {name: np.where(rows, value, np.zeros_like(value)), f"_{name}": where.copy()}
    return marked
