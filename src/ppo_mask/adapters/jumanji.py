"""Environments of jumanji: puzzles, packing and routing, most of them with masks.

Bonnet et al. 2024, arXiv:2306.09884; https://github.com/instadeepai/jumanji
"""

import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ppo_mask.adapters._shared import figure_pixels, import_library, make_named, make_timestep
from ppo_mask.envs import AbstractEnv, ArrayInfo, TimeStep
from ppo_mask.envs._jitted import jitted
from ppo_mask.envs.actions import ActionLike, Actions, NumActions
from ppo_mask.envs.drawing import Picture
from ppo_mask.jax_tools import ArrayTree, number_settings
from ppo_mask.jax_tools._trees import strong_types

_SETS = {
    "BinPack": (("ems", "ems_mask"), ("items", "items_placed", "items_mask")),
    "JobShop": (
        ("machines_job_ids", "machines_remaining_times", None),
        ("ops_machine_ids", "ops_durations", "ops_mask", None),
    ),
    "Knapsack": (("weights", "values", "packed_items", "action_mask", None),),
}
_BOUNDS = {"Game2048": (0, 17)}  # jumanji does not say them; 2^17 is the largest tile there can be.


@final
class JumanjiEnv(AbstractEnv[ArrayTree]):
    """An environment of jumanji.

    The mask is the observation's ``action_mask``; without a mask, all actions are allowed. If a
    jumanji action has several parts, the mask decides whether the action is MultiDiscrete here. A
    mask with a row for each part makes the action MultiDiscrete. With a mask that has an entry for
    each combination of parts, or without a mask, each combination is one action, numbered so that
    the last part changes fastest. (A 2 x 2 mask, which could be either, is read as combinations.)

    An episode that ends with discount 0 has terminated; an episode that ends with another discount
    was truncated. ``info`` is jumanji's extras.

    Randomness comes from the key of ``step``, not from the key in jumanji's state.

    Attributes:
        num_actions: the number of actions, or of combinations of parts; for MultiDiscrete actions,
            a tuple with the number of values of each part.
        parts: the number of values of each part of an action; empty if an action is one number.
        environment: the environment of jumanji.
    """

    num_actions: NumActions = eqx.field(static=True)
    parts: tuple[int, ...] = eqx.field(static=True)
    environment: Any = eqx.field(static=True)

    def __init__(self, environment: Any):
        """Wraps an environment, which may be given by its name.

        Args:
            environment: an environment of jumanji, or a name that ``jumanji.make`` knows.

        Raises:
            RunError: jumanji is not installed, or cannot download files for the environment.
            ValueError: the name is unknown; the actions are not discrete; there are rewards for
                several agents; or the mask fits neither the parts of an action nor their
                combinations.
        """
        jumanji, specs = import_library("jumanji"), import_library("jumanji.specs")
        environment = make_named(jumanji.make, "jumanji", environment)
        called = f"{type(environment).__name__} of jumanji"
        spec = environment.action_spec
        if isinstance(spec, specs.DiscreteArray):
            self.parts, self.num_actions = (), int(spec.num_values)
        elif isinstance(spec, specs.MultiDiscreteArray):
            self.parts = tuple(int(n) for n in spec.num_values.reshape(-1))
            self.num_actions = math.prod(self.parts)
        else:
            raise ValueError(f"{called} has actions of {spec}; they must be discrete")
        if environment.reward_spec.shape != ():
            raise ValueError(
                f"{called} gives rewards of shape {environment.reward_spec.shape}, to several "
                "agents; there must be one"
            )
        with number_settings():
            _, first = jax.eval_shape(environment.reset, jax.random.PRNGKey(0))
        mask = getattr(first.observation, "action_mask", None)
        wanted = self.parts or (self.num_actions,)
        if mask is not None and mask.shape != wanted:
            sizes = set(self.parts)
            if len(sizes) != 1 or mask.shape != (len(self.parts), *sizes):
                raise ValueError(
                    f"{called} has a mask of shape {mask.shape} for actions of {wanted} values: it "
                    "does not say which of their combinations are allowed"
                )
            self.num_actions = self.parts
        self.environment = environment

    @property
    def observation_info(self) -> Any:
        """The bounds of the observation's spec; the channels of boards are the last axis."""

        def info(path: Any, leaf: Any) -> ArrayInfo:
            del leaf
            spec: Any = self.environment.observation_spec
            for entry in path:
                spec = spec[jax.tree_util.keystr((entry,), simple=True)]
            if not hasattr(spec, "minimum"):
                return ArrayInfo(_BOUNDS.get(type(self.environment).__name__), channels_first=False)
            low, high = np.asarray(spec.minimum).min(), np.asarray(spec.maximum).max()
            return ArrayInfo((low, high), channels_first=False)

        observation = jax.eval_shape(self.environment.observation_spec.generate_value)
        return jax.tree_util.tree_map_with_path(info, observation)

    @property
    def observation_sets(self) -> Any:
        """Of BinPack, the spaces and the items; of Knapsack, the items; else None."""
        return _SETS.get(type(self.environment).__name__)

    @jitted
    def reset(self, key: Key[Array, ""]) -> tuple[ArrayTree, TimeStep]:
        return self._convert(*self.environment.reset(jax.random.key_data(key)))

    @jitted
    def step(
        self, key: Key[Array, ""], state: ArrayTree, action: ActionLike
    ) -> tuple[ArrayTree, TimeStep]:
        actions = Actions.of(self.num_actions)
        action = actions.convert(action)
        if self.parts and not actions.has_parts:
            action = jnp.stack(jnp.unravel_index(action, self.parts))
        action = action.astype(self.environment.action_spec.dtype)
        state = state.replace(key=jax.random.key_data(key))
        return self._convert(*self.environment.step(state, action))

    def draw(self, state: ArrayTree, timestep: TimeStep) -> Picture:
        """Draws a state as jumanji does, without opening a window."""
        del timestep
        pyplot = import_library("matplotlib.pyplot")
        backend = pyplot.get_backend()
        pyplot.switch_backend("agg")
        try:
            with pyplot.ion():  # Otherwise jumanji shows the figure, which agg warns about.
                self.environment.render(state)
            return figure_pixels(pyplot.gcf())
        finally:
            pyplot.switch_backend(backend)

    def _convert(self, state: Any, timestep: Any) -> tuple[ArrayTree, TimeStep]:
        actions = Actions.of(self.num_actions)
        mask = getattr(timestep.observation, "action_mask", jnp.ones(actions.length, bool))
        if actions.has_parts:
            # If a part's mask is all False, every value is allowed; jumanji decides its effect.
            mask = mask | ~mask.any(axis=-1, keepdims=True)
        return strong_types(state.replace(key=jnp.zeros_like(state.key))), make_timestep(
            timestep.observation,
            mask.reshape(-1),
            timestep.reward,
            timestep.last() & (timestep.discount == 0),
            timestep.last(),
            timestep.extras,
        )
