"""Adapts many copies of an environment to a Gymnasium vector environment."""

import operator
from collections.abc import Sequence
from typing import Any, final

import jax
import numpy as np
from jaxtyping import Bool, Float

from ppo_mask.adapters._gymnasium import AbstractGymnasiumEnv, check_actions, gymnasium
from ppo_mask.envs import AbstractEnv, VectorEnv

_Flags = Bool[np.ndarray, " envs"]


@final
class ToGymnasiumVector(AbstractGymnasiumEnv, gymnasium.vector.VectorEnv[Any, Any, Any]):
    """Many environments in one compiled program, as a ``gymnasium.vector.VectorEnv``.

    Where an episode ends, the next episode starts in the same step (Gymnasium's
    ``AutoresetMode.SAME_STEP``). This step returns the new episode's observation and mask.
    ``info["final_obs"]`` has the old episode's last observation (an array of objects, None where no
    episode ended), and ``info["final_info"]`` has the info of the old episode's last step. Before
    the first step of an episode there is no info, so ``info["_<name>"]`` is False, as in
    Gymnasium's own vectors. To draw one environment, take a ``ToGymnasium``.

    Attributes:
        env: one of the environments.
        num_envs: the number of environments.
        metadata: the autoreset mode.
        single_observation_space: the observation space of one environment.
        single_action_space: the action space of one environment.
        observation_space: the observation space of all environments together.
        action_space: the action space of all environments together.

    Example:
        >>> from ppo_mask.envs.probes import MaskedLocks
        >>> envs = ToGymnasiumVector(MaskedLocks(keys=2), num_envs=3)  # doctest: +SKIP
        >>> observation, info = envs.reset(seed=0)  # doctest: +SKIP
        >>> actions = envs.action_masks().argmax(axis=1)  # doctest: +SKIP
        >>> envs.step(actions)[1].shape  # doctest: +SKIP
        (3,)
    """

    def __init__(
        self,
        env: AbstractEnv[Any],
        num_envs: int,
        *,
        observation_space: gymnasium.Space[Any] | None = None,
    ) -> None:
        """Compiles nothing yet; the first reset and the first step compile.

        Args:
            env: the environment.
            num_envs: the number of environments, at least 1.
            observation_space: the observation space of one environment; None for a space that is
                bounded only by the arrays' dtypes.

        Raises:
            ValueError: ``num_envs`` is below 1.
            TypeError: ``observation_space`` is None and no space can be made.
        """
        self.single_observation_space, self.single_action_space = self._set_up(
            VectorEnv(env, num_envs), observation_space
        )
        self.metadata = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        self.num_envs = num_envs
        batch = gymnasium.vector.utils.batch_space
        self.observation_space = batch(self.single_observation_space, num_envs)
        self.action_space = batch(self.single_action_space, num_envs)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[Any, dict[str, Any]]:
        """Starts an episode in every environment.

        Args:
            seed: one seed for all environments, which starts a new sequence of episodes; None
                continues the current sequence.
            options: ignored, except that a ``reset_mask`` raises an error, since ended episodes are
                reset automatically.

        Returns:
            The observations, with a leading axis ``envs``, and the infos.

        Raises:
            ValueError: there is a ``reset_mask``, or there are several seeds.
        """
        if options and "reset_mask" in options:
            raise ValueError("a reset_mask is for vectors without autoreset; this one resets all")
        if isinstance(seed, Sequence):
            raise ValueError(f"seed must be one whole number for all environments, got {seed!r}")
        super().reset(seed=seed)
        observation, _, _, _, info, _ = self._begin(self.np_random)
        return observation, _mark_infos(info, np.ones(self.num_envs, bool))

    def step(
        self, actions: Any
    ) -> tuple[Any, Float[np.ndarray, " envs"], _Flags, _Flags, dict[str, Any]]:
        """Takes an action in each environment.

        The environment decides the effect of an action outside the mask.

        Args:
            actions: integers ``[envs]``; if MultiDiscrete, ``[envs, parts]``.

        Returns:
            The next observations; this step's rewards (float64), whether each episode terminated,
            and whether it was truncated, each ``[envs]``; and the infos.

        Raises:
            ValueError: the actions are not one integer for each environment, or an action is out of
                range.
            gymnasium.error.ResetNeeded: before the first reset.
        """
        self._require_reset("step")
        actions = check_actions(actions, self.env.num_actions, self.num_envs)
        observation, reward, terminated, truncated, step_info, final = self._take(actions)
        ended = terminated | truncated
        info = _mark_infos(step_info, ~ended)
        if ended.any():
            info |= {
                "final_obs": _copy_rows(final, ended),
                "final_info": _mark_infos(step_info, ended),
                "_final_obs": ended,
                "_final_info": ended.copy(),
            }
        return observation, reward.astype(np.float64), terminated, truncated, info


def _copy_rows(tree: Any, where: _Flags) -> Any:
    """Splits a tree into an array of objects ``[envs]``, with None where ``where`` is False."""
    rows = np.full(len(where), None, dtype=object)
    for number in np.flatnonzero(where):
        rows[number] = jax.tree.map(operator.itemgetter(number), tree)
    return rows


def _mark_infos(info: dict[str, Any], where: _Flags) -> dict[str, Any]:
    """Adds Gymnasium's ``_<name>``, which says where an info is valid; the info is 0 elsewhere."""
    marked: dict[str, Any] = {}
    for name, value in info.items():
        rows = where.reshape(-1, *[1] * (value.ndim - 1))
        marked |= {name: np.where(rows, value, np.zeros_like(value)), f"_{name}": where.copy()}
    return marked
