"""Many environments side by side, with the library's only auto-reset."""

from typing import Generic, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs._env import AbstractEnv, AbstractSelfResettingEnv, Next, TimeStep
from ppo_mask.jax_tools import ArrayTree, rarely, split_key

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
    """What the agent sees of ``envs`` environments at once.

    ``observation`` and ``action_mask`` are what to act on next: where an episode has just ended,
    they are the **new** episode's. Everything else belongs to the step just taken, so that a
    truncated episode can be bootstrapped from ``final_observation`` and a terminated one is not.

    Attributes:
        observation: to act on next.
        action_mask: to act on next.
        reward: of the step taken.
        terminated: the step ended its episode in a terminal state.
        truncated: the step's episode was cut off.
        info: of the step taken.
        final_observation: what the step led to; equals ``observation`` where no episode ended.
        episode_return: return of the step's episode so far; whole where it has ended.
        episode_length: length of the step's episode so far; whole where it has ended.
    """

    observation: ArrayTree
    action_mask: Bool[Array, "envs actions"]
    reward: Float[Array, " envs"]
    terminated: Bool[Array, " envs"]
    truncated: Bool[Array, " envs"]
    info: dict[str, Array]
    final_observation: ArrayTree
    episode_return: Float[Array, " envs"]
    episode_length: Int[Array, " envs"]

    @property
    def ended(self) -> Bool[Array, " envs"]:
        """Where the step ended an episode, either way."""
        return self.terminated | self.truncated


class VectorEnv(eqx.Module, Generic[State]):
    """``num_envs`` copies of an environment, reset one by one as their episodes end.

    A reset runs only for the environments that need it (:func:`rarely`), so that an expensive one
    does not slow the others down.

    Attributes:
        env: the environment.
        num_envs: how many run side by side.
    """

    env: AbstractEnv[State]
    num_envs: int = eqx.field(static=True)

    def __check_init__(self) -> None:
        if self.num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {self.num_envs}")

    @property
    def num_actions(self) -> int:
        """The number of actions of each environment."""
        return self.env.num_actions

    def reset(self, key: Key[Array, ""]) -> tuple[VectorState[State], VectorTimeStep]:
        """Starts an episode in every environment."""
        env_state, timestep = jax.vmap(self.env.reset)(jax.random.split(key, self.num_envs))
        episode_return = jnp.zeros_like(timestep.reward)
        episode_length = jnp.zeros(self.num_envs, jnp.int32)
        return (
            VectorState(env_state, episode_return, episode_length),
            _vector_timestep(
                timestep.observation, timestep.action_mask, timestep, episode_return, episode_length
            ),
        )

    def step(
        self,
        key: Key[Array, ""],
        state: VectorState[State],
        actions: Int[Array, " envs"],
    ) -> tuple[VectorState[State], VectorTimeStep]:
        """Takes one action in every environment and starts new episodes where one has ended."""
        return self.step_with(split_key(key, 2, self.num_envs), state, actions)

    def step_with(
        self,
        keys: Key[Array, "2 envs"],
        state: VectorState[State],
        actions: Int[Array, " envs"],
    ) -> tuple[VectorState[State], VectorTimeStep]:
        """:meth:`step` of all environments or of some, such as those of one device.

        Args:
            keys: for the step of each environment, and for a reset.
            state: of as many environments.
            actions: likewise.
        """
        step_keys, reset_keys = keys
        final, following = jax.vmap(self._step_and_reset)(
            step_keys, reset_keys, state.env_state, actions
        )
        ended = final.terminated | final.truncated
        episode_return = state.episode_return + final.reward
        episode_length = state.episode_length + 1
        state = VectorState(
            following.state,
            jnp.where(ended, 0, episode_return),
            jnp.where(ended, 0, episode_length),
        )
        return state, _vector_timestep(
            following.observation, following.action_mask, final, episode_return, episode_length
        )

    def _step_and_reset(
        self,
        step_key: Key[Array, ""],
        reset_key: Key[Array, ""],
        state: State,
        action: Int[Array, ""],
    ) -> tuple[TimeStep, Next[State]]:
        if isinstance(self.env, AbstractSelfResettingEnv):
            return self.env.step_and_reset(step_key, reset_key, state, action)
        state, final = self.env.step(step_key, state, action)

        # An environment's arrays are passed on: they may change while a run goes on.
        arrays, static = eqx.partition(self.env, eqx.is_array)

        def fresh(operand: tuple[ArrayTree, Key[Array, ""]]) -> Next[State]:
            state, timestep = eqx.combine(operand[0], static).reset(operand[1])
            return Next(state, timestep.observation, timestep.action_mask)

        following = Next(state, final.observation, final.action_mask)
        ended = final.terminated | final.truncated
        return final, rarely(ended, fresh, (arrays, reset_key), following)


def _vector_timestep(
    observation: ArrayTree,
    action_mask: Bool[Array, "envs actions"],
    final: TimeStep,
    episode_return: Float[Array, " envs"],
    episode_length: Int[Array, " envs"],
) -> VectorTimeStep:
    return VectorTimeStep(
        observation=observation,
        action_mask=action_mask,
        reward=final.reward,
        terminated=final.terminated,
        truncated=final.truncated,
        info=final.info,
        final_observation=final.observation,
        episode_return=episode_return,
        episode_length=episode_length,
    )
