"""The common parts of ``ToGymnasium`` and ``ToGymnasiumVector``."""

from typing import Any

import jax
import numpy as np
from jaxtyping import Bool, Int

from ppo_mask.adapters._spaces import make_observation_space
from ppo_mask.envs import AbstractEnv, VectorEnv, VectorTimeStep
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.jax_tools import compile_for

try:
    import gymnasium
    from gymnasium.envs.registration import EnvSpec
except ImportError as error:
    raise ImportError(
        f"Gymnasium cannot be imported ({error}); install it with pip install 'ppo-mask[gymnasium]'"
    ) from error

__all__ = ["AbstractGymnasiumEnv", "EnvSpec", "check_actions", "gymnasium"]


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


class AbstractGymnasiumEnv:
    """Stepping and masks, for one environment or a vector.

    ``_begin`` makes a key ``fold_in(key(a), b)`` from two 32-bit words ``a`` and ``b`` of
    ``np_random``. ``_begin`` and each ``_take`` split the key, use the second half, and keep the
    first half for the next step.

    The class has no ``__init__``, since subclasses also inherit from Gymnasium's classes.
    """

    env: AbstractEnv[Any]
    _stepped: AbstractEnv[Any] | VectorEnv[Any]
    _programs: dict[Any, Any]
    _key_data: Any
    _state: Any
    _mask: Bool[np.ndarray, "*envs actions"] | None

    def _set_up(
        self, env: AbstractEnv[Any] | VectorEnv[Any], observation_space: gymnasium.Space[Any] | None
    ) -> tuple[Any, Any]:
        """Sets the attributes; returns the observation and action spaces of one environment."""
        self.env = env.env if isinstance(env, VectorEnv) else env
        self._stepped, self._programs, self._mask = env, {}, None
        spaces, count, actions = gymnasium.spaces, env.num_actions, Actions.of(env.num_actions)
        return (
            observation_space or make_observation_space(self.env, spaces),
            spaces.MultiDiscrete(count) if actions.has_parts else spaces.Discrete(count),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out compiled functions, which cannot be pickled."""
        return vars(self) | {"_programs": {}}

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

    def _begin(self, generator: np.random.Generator) -> Any:
        """Starts an episode, with a key from the generator; returns the same as ``_take``."""
        return self._run(_reset, generator.integers(2**32, size=2, dtype=np.uint32))

    def _take(self, action: Any) -> Any:
        """Takes an action; for a vector, an action in each environment.

        Returns:
            Observation, reward, terminated, truncated, info, and a vector's final observations, as
            writable NumPy arrays and Python numbers.
        """
        return self._run(_step, self._key_data, self._state, action)

    def _program(self, function: Any) -> Any:
        if function not in self._programs:
            self._programs[function] = compile_for(self._stepped, function)
        return self._programs[function]

    def _run(self, function: Any, *args: Any) -> Any:
        self._key_data, self._state, shown = self._program(function)(*args)
        # A lambda, since the types of a function would be checked for every array.
        writable: Any = lambda x: np.array(x) if x.ndim else x.item()  # noqa: E731
        self._mask, *others = jax.tree.map(writable, jax.device_get(shown))
        return others


def _reset(env: Any, words: Any) -> Any:
    key = jax.random.fold_in(jax.random.key(words[0]), words[1])
    key, reset_key = jax.random.split(key)
    return _shown(key, *env.reset(reset_key))


def _step(env: Any, key_data: Any, state: Any, action: Any) -> Any:
    key, step_key = jax.random.split(jax.random.wrap_key_data(key_data))
    return _shown(key, *env.step(step_key, state, action))


def _shown(key: Any, state: Any, timestep: Any) -> Any:
    names = "action_mask", "observation", "reward", "terminated", "truncated", "info"
    final = timestep.final_observation if isinstance(timestep, VectorTimeStep) else ()
    shown = *(getattr(timestep, name) for name in names), final
    # Python keeps the key's data, since making a key array outside of compiled code is slow.
    return jax.random.key_data(key), state, shown
