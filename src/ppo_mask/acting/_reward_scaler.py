"""Rewards divided by the running standard deviation of the discounted return."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_mask.devices.sharding import per_env
from ppo_mask.networks._moments import RunningMoments

_LIMIT = 10.0


def scaled_rewards(
    reward: Float[Array, "*batch"], deviation: float | Float[Array, ""]
) -> Float[Array, "*batch"]:
    """Divides rewards by the deviation of the discounted return, then clips them to ±10."""
    return jnp.clip(reward / deviation, -_LIMIT, _LIMIT)


class RewardScaler(eqx.Module):
    """Divides rewards by the standard deviation of the discounted return, then clips them to ±10.

    No mean is subtracted: a reward of 0 stays 0, and the optimal policy stays the same (Engstrom et
    al. 2020, arXiv:2005.12729, describe this scaling among PPO's code-level optimizations).

    Args:
        num_envs: number of environments.

    Attributes:
        moments: statistics of all values of R so far.
        discounted_return: R ← γ R + r, over each environment's running episode.
    """

    moments: RunningMoments
    discounted_return: Float[Array, " envs"] = per_env()

    def __init__(self, num_envs: int):
        self.discounted_return = jnp.zeros(num_envs, jnp.float32)
        self.moments = RunningMoments(())

    def scale(
        self,
        reward: Float[Array, "steps envs"],
        ended: Bool[Array, "steps envs"],
        gamma: float | Float[Array, ""],
    ) -> tuple["RewardScaler", Float[Array, "steps envs"]]:
        """Updates the statistics with a rollout, then scales the rollout's rewards.

        Args:
            reward: the reward of each step.
            ended: True where a step ended its episode.
            gamma: discount per step.

        Returns:
            The updated scaler, and the scaled rewards.
        """

        reward = reward.astype(jnp.float32)

        def step(running: Array, step: tuple[Array, Array]) -> tuple[Array, Array]:
            reward, ended = step
            running = gamma * running + reward
            return jnp.where(ended, 0, running), running

        running, returns = jax.lax.scan(step, self.discounted_return, (reward, ended))
        # Environments first, so that devices need not exchange data.
        moments = self.moments.update(returns.swapaxes(0, 1).reshape(-1))
        scaler = eqx.tree_at(lambda s: (s.discounted_return, s.moments), self, (running, moments))
        return scaler, scaled_rewards(reward, moments.deviation)
