"""Environments for the tests."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from ppo_mask.envs import AbstractEnv, TimeStep


class Scripted(AbstractEnv[Int[Array, ""]]):
    """Does what it is told: action 0 goes on, 1 terminates, 2 truncates, 3 does both.

    The observation is the number of steps taken and the reward the number of the step: 1, 2, 3, …
    With ``length``, episodes also end by themselves, terminated after so many steps.
    """

    length: int | None = eqx.field(static=True, default=None)
    num_actions: int = eqx.field(static=True, default=4)

    def reset(self, key):
        return jnp.int32(0), self._timestep(jnp.int32(0), 0.0, False, False)

    def step(self, key, state, action):
        terminated = (action == 1) | (action == 3)
        if self.length is not None:
            terminated |= state + 1 >= self.length
        truncated = (action == 2) | (action == 3)
        return state + 1, self._timestep(state + 1, state + 1.0, terminated, truncated)

    def _timestep(self, steps, reward, terminated, truncated):
        terminated, truncated = jnp.asarray(terminated), jnp.asarray(truncated)
        only_go_on = jnp.arange(4) == 0
        return TimeStep(
            observation=jnp.float32(steps)[None],
            action_mask=only_go_on | terminated | truncated,
            reward=jnp.float32(reward),
            terminated=terminated,
            truncated=truncated,
            info={"steps": steps},
        )


class CartPole(AbstractEnv[tuple[Float[Array, " 4"], Int[Array, ""]]]):
    """Classic control (Barto, Sutton and Anderson 1983), as in Gymnasium's CartPole-v1."""

    num_actions: int = eqx.field(static=True, default=2)

    def reset(self, key):
        state = jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05)
        return (state, jnp.int32(0)), self._timestep(state, 0.0, False, False)

    def step(self, key, state, action):
        (_, v, angle, spin), steps = state
        force = jnp.where(action == 1, 10.0, -10.0)
        pull = (force + 0.05 * spin**2 * jnp.sin(angle)) / 1.1
        acceleration = (9.8 * jnp.sin(angle) - jnp.cos(angle) * pull) / (
            0.5 * (4 / 3 - 0.1 * jnp.cos(angle) ** 2 / 1.1)
        )
        push = pull - 0.05 * acceleration * jnp.cos(angle) / 1.1
        change = jnp.stack([v, push, spin, acceleration])
        new = state[0] + 0.02 * change
        fallen = (jnp.abs(new[0]) > 2.4) | (jnp.abs(new[2]) > 12 * 2 * math.pi / 360)
        late = steps + 1 >= 500
        return (new, steps + 1), self._timestep(new, 1.0, fallen, late & ~fallen)

    def _timestep(self, state, reward, terminated, truncated):
        return TimeStep(
            observation=state,
            action_mask=jnp.ones(2, bool),
            reward=jnp.float32(reward),
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
            info={},
        )
