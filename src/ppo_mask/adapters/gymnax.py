"""Environments of gymnax: classic control, MinAtar, bsuite and others.

https://github.com/RobertTLange/gymnax
"""

from typing import Any, ClassVar, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key

from ppo_mask.adapters._shared import (
    figure_pixels,
    import_library,
    make_named,
    make_timestep,
    select_arrays,
)
from ppo_mask.envs import AbstractEnv, ArrayInfo, TimeStep
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.drawing import Picture
from ppo_mask.jax_tools import ArrayTree, IntScalarLike
from ppo_mask.jax_tools._trees import strong_types, zeros_from_shapes


@final
class GymnaxEnv(AbstractEnv[ArrayTree]):
    """An environment of gymnax.

    All actions are allowed, since gymnax has no masks. The time limit, ``max_steps_in_episode`` in
    ``params``, truncates episodes. ``info`` is gymnax's; ``reset`` returns zeros in its place.

    Attributes:
        params: the environment's parameters. Array parameters may differ between the tasks of a
            :class:`ppo_mask.envs.MultiTask`, and change with a curriculum.
        num_actions: the number of actions.
        environment: the environment of gymnax.
        observation_info: the channels of MinAtar's boards come last.
    """

    params: Any
    num_actions: int = eqx.field(static=True)
    environment: Any = eqx.field(static=True)
    observation_info: ClassVar = ArrayInfo(channels_first=False)

    def __init__(self, environment: Any, params: Any = None):
        """Wraps an environment, which may be given by its name.

        Args:
            environment: an environment of gymnax, or a name that ``gymnax.make`` knows.
            params: the environment's parameters; None for the defaults.

        Raises:
            RunError: gymnax is not installed.
            ValueError: the name is unknown, or the actions are not discrete.
        """
        gymnax = import_library("gymnax")
        environment = make_named(lambda name: gymnax.make(name)[0], "gymnax", environment)
        self.params = environment.default_params if params is None else params
        space = environment.action_space(self.params)
        if not isinstance(space, gymnax.environments.spaces.Discrete):
            raise ValueError(
                f"{environment.name} of gymnax has actions of {space}; they must be Discrete"
            )
        self.num_actions = int(space.n)
        self.environment = environment

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        observation, state = self.environment.reset_env(key, self.params)
        info = jax.eval_shape(lambda: select_arrays(self._step(key, state, jnp.int32(0))[-1]))
        info = zeros_from_shapes(info)
        return strong_types(state), make_timestep(
            observation, self._mask(), 0.0, False, False, info
        )

    @jitted
    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: IntScalarLike
    ) -> tuple[ArrayTree, TimeStep]:
        action = jnp.asarray(action, jnp.int32)
        observation, state, reward, terminated, info = self._step(key, state, action)
        truncated = self.environment.is_truncated(state, self.params)
        timestep = make_timestep(observation, self._mask(), reward, terminated, truncated, info)
        return strong_types(state), timestep

    def draw(self, state: ArrayTree, timestep: TimeStep) -> Picture | None:
        """Draws a state as gymnax does; None if gymnax cannot draw the environment.

        Raises:
            RunError: matplotlib or seaborn is not installed, or pygame for classic control.
        """
        del timestep
        visualize = import_library("gymnax.visualize.visualizer")
        drawn = visualize.Visualizer(self.environment, self.params, [state])
        drawn.init()
        pixels = figure_pixels(drawn.fig)
        return pixels if hasattr(drawn, "im") else None

    def _step(self, key: Any, state: Any, action: Any) -> Any:
        return self.environment.step_env(key, state, action, self.params)

    def _mask(self) -> Bool[Array, " actions"]:
        return jnp.ones(self.num_actions, bool)
