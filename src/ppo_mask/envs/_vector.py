"""A batch of copies of an environment."""

from collections.abc import Callable
from functools import partial
from typing import Any, Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs._env import AbstractEnv, Next, TimeStep
from ppo_mask.envs._host import raise_failure, require_host_support
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.errors import RunError, check_at_least
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._programs import split_key
from ppo_mask.jax_tools._trees import strong_types

State = TypeVar("State")


class VectorState(eqx.Module, Generic[State]):
    """The environments' states and the running episodes' statistics.

    Attributes:
        env_state: the environments' own states, with a leading axis ``envs``.
        episode_return: sum of the rewards of the running episode, undiscounted and not normalized.
        episode_length: steps taken in the running episode.
    """

    env_state: ArrayTree
    episode_return: Float[Array, " envs"]
    episode_length: Int[Array, " envs"]


class VectorTimeStep(eqx.Module):
    """The :class:`TimeStep` of several environments at once, with episode statistics.

    ``observation`` and ``action_mask`` are for the next action: where an episode has just ended,
    they are from the **new** episode. All other fields are from the step just taken. Where this
    step truncated an episode, PPO bootstraps from ``final_observation``.

    Attributes:
        observation: for the next action.
        action_mask: for the next action.
        reward: of the step taken.
        terminated: the step ended its episode in a terminal state.
        truncated: the step's episode was cut off.
        info: of the step taken.
        final_observation: the observation after the step taken, before any reset.
        final_action_mask: the mask of ``final_observation``; where a time limit has cut the episode
            off, the environment's own mask.
        episode_return: undiscounted sum of rewards in the step's episode, this step included.
        episode_length: number of steps in the step's episode, this step included.
    """

    observation: ArrayTree
    action_mask: Bool[Array, "envs actions"]
    reward: Float[Array, " envs"]
    terminated: Bool[Array, " envs"]
    truncated: Bool[Array, " envs"]
    info: dict[str, Array]
    final_observation: ArrayTree
    final_action_mask: Bool[Array, "envs actions"]
    episode_return: Float[Array, " envs"]
    episode_length: Int[Array, " envs"]

    @property
    def ended(self) -> Bool[Array, " envs"]:
        """True where the step terminated or truncated its episode."""
        return self.terminated | self.truncated


class PerGroup(eqx.Module):
    """Marks the parts of an environment that differ between groups of its copies.

    With ``n`` groups, :class:`VectorEnv` gives entry ``i % n`` to copy number ``i``.

    Attributes:
        each: arrays with a leading axis of groups; inside of the environment, without this axis.
    """

    each: ArrayTree


class VectorEnv(eqx.Module, Generic[State]):
    """``num_envs`` copies of an environment, each reset when its episode ends.

    A reset runs only for the environments that need it (:func:`ppo_mask.jax_tools.rarely`), so that
    expensive resets do not slow the others down. Compile the caller of :meth:`step`: outside of
    ``jax.jit`` each operation is compiled and run alone, and some are compiled again in each call.

    Attributes:
        env: the environment.
        num_envs: number of copies.

    Raises:
        ValueError: ``num_envs`` is below 1.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> env = pm.VectorEnv(pm.envs.probes.ConstantValue(), num_envs=4)
        >>> state, timestep = env.reset(jax.random.key(0))
        >>> actions = jnp.zeros(4, jnp.int32)
        >>> state, timestep = env.step(jax.random.key(1), state, actions)
        >>> timestep.reward.tolist(), timestep.observation.shape
        ([1.0, 1.0, 1.0, 1.0], (4, 1))
    """

    env: AbstractEnv[State]
    num_envs: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        check_at_least(1, num_envs=self.num_envs)

    @property
    def num_actions(self) -> NumActions:
        """The number of actions of each environment; if MultiDiscrete, a number for each part."""
        return self.env.num_actions

    def reset(self, key: Key[Array, ""]) -> tuple[VectorState[State], VectorTimeStep]:
        """Starts an episode in every environment.

        Args:
            key: split over the environments.

        Returns:
            The state and the timestep, whose arrays have a leading axis ``envs``.
        """

        def start(env: AbstractEnv[State], key: Key[Array, ""]) -> tuple[State, TimeStep]:
            state, timestep = env.reset(key)
            return strong_types(state), timestep

        begun = self._map(start, jax.random.split(key, self.num_envs))
        env_state, timestep = raise_failure(self.env, begun)
        episode_return = jnp.zeros(self.num_envs, jnp.float32)
        episode_length = jnp.zeros(self.num_envs, jnp.int32)
        state = VectorState(env_state, episode_return, episode_length)
        return state, _vector_timestep(timestep, timestep, episode_return, episode_length)

    def step(
        self, key: Key[Array, ""], state: VectorState[State], actions: Int[Array, "envs *parts"]
    ) -> tuple[VectorState[State], VectorTimeStep]:
        """Takes one action in every environment, and starts a new episode where one ends.

        Args:
            key: split over the environments' steps and resets.
            state: the state of all environments.
            actions: one for each environment; if MultiDiscrete, ``[envs, parts]``.

        Returns:
            The state and the timestep, whose arrays have a leading axis ``envs``.

        Raises:
            ValueError: actions have the wrong shape.
        """
        return self.step_with(split_key(key, 2, self.num_envs), state, actions)

    def step_with(
        self,
        keys: Key[Array, "2 envs"],
        state: VectorState[State],
        actions: Int[Array, "envs *parts"],
    ) -> tuple[VectorState[State], VectorTimeStep]:
        """Takes a :meth:`step` in some of the environments, such as those of one device.

        Args:
            keys: keys of the environments' steps, and keys of their resets.
            state: the state of these environments.
            actions: one for each of these environments, as in :meth:`step`.
        """
        one = Actions.of(self.num_actions)
        if actions.shape[1:] != one.shape:
            wanted = [len(actions), *one.shape]
            raise ValueError(
                f"actions have shape {list(actions.shape)}, not {wanted}: there are {one}"
            )
        step_keys, reset_keys = keys
        require_host_support(self.env)
        args = step_keys, reset_keys, state.env_state, actions
        stepped = self._map(lambda env, *args: env.step_and_reset(*args), *args)
        final, following = raise_failure(self.env, stepped)
        ended = final.terminated | final.truncated
        episode_return = state.episode_return + final.reward.astype(jnp.float32)
        episode_length = state.episode_length + 1
        state = VectorState(
            following.state,
            jnp.where(ended, 0, episode_return),
            jnp.where(ended, 0, episode_length),
        )
        return state, _vector_timestep(following, final, episode_return, episode_length)

    def choose(
        self, state: VectorState[State], distributions: Any, *numbers: Float[Array, "envs *parts"]
    ) -> Any:
        """Chooses an action in every environment, part by part if it has a ``part_mask``.

        Args:
            state: the state of all environments, or of those of one device.
            distributions: a :class:`~ppo_mask.networks.AbstractMaskedDistribution` of each.
            numbers: random numbers to sample by; without them, the likeliest choices are taken.

        Returns:
            What :meth:`~ppo_mask.networks.AbstractMaskedDistribution.choose` returns, batched.
        """

        def one(env: AbstractEnv[State], state: Any, distribution: Any, *number: Any) -> Any:
            return distribution.choose(partial(env.part_mask, state), *number)

        return self._map(one, state.env_state, distributions, *numbers)

    def _map(self, function: Callable[..., Any], *args: ArrayTree) -> Any:
        """Maps ``function(env, *args)`` over the copies, with each group's own environment."""

        def is_group(x: Any) -> bool:
            return isinstance(x, PerGroup)

        arrays, static = eqx.partition(self.env, eqx.is_array)
        marked = [x for x in jax.tree.leaves(arrays, is_leaf=is_group) if is_group(x)]
        if not marked:
            return jax.vmap(partial(function, self.env))(*args)
        groups, copies = len(jax.tree.leaves(marked)[0]), len(jax.tree.leaves(args)[0])
        if copies % groups:
            raise RunError(
                f"{copies} environments on a device cannot be split among {groups} opponents: "
                f"choose num_envs as a multiple of {groups} for each device"
            )

        def one(arrays: Any, *args: Any) -> Any:
            return function(eqx.combine(arrays, static), *args)

        axes = jax.tree.map(lambda x: 0 if is_group(x) else None, arrays, is_leaf=is_group)
        in_group = jax.vmap(one, (None, *(0 for _ in args)))
        in_all = jax.vmap(in_group, (axes, *(1 for _ in args)), 1)
        split = jax.tree.map(lambda x: x.reshape(-1, groups, *x.shape[1:]), args)
        joined = in_all(arrays, *split)
        return jax.tree.map(lambda x: x.reshape(copies, *x.shape[2:]), joined)


def _vector_timestep(
    following: Next[Any] | TimeStep,
    final: TimeStep,
    episode_return: Float[Array, " envs"],
    episode_length: Int[Array, " envs"],
) -> VectorTimeStep:
    fields: dict[str, Any] = vars(final) | {
        "observation": following.observation,
        "action_mask": following.action_mask,
        "reward": final.reward.astype(jnp.float32),
    }
    return VectorTimeStep(
        **fields,
        final_observation=final.observation,
        final_action_mask=final.action_mask,
        episode_return=episode_return,
        episode_length=episode_length,
    )
