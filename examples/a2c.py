"""A2C on masked actions: an algorithm of one's own in a page, with all that a run has.

``python examples/a2c.py --total-timesteps 100000`` trains; ``--resume latest`` goes on; ``evaluate
latest``, ``--num-seeds 4`` and ``--help`` work as in every program. Networks may be recurrent.
"""

import dataclasses
from typing import Any, Literal

import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import ppo_mask as pm
from ppo_mask.acting import next_values
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import forward, trainable, vmap_axes
from ppo_mask.ppo import estimate_advantages
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import (
    make_batch,
    mean_over_steps,
    rows_per_env,
    shuffle_rows,
    static_setting,
    take_gradient_steps,
    traced_setting,
)


class A2C(pm.AbstractAlgorithm):
    """Advantage actor-critic (Mnih et al. 2016, arXiv:1602.01783), one gradient step a rollout."""

    num_envs: int = static_setting(64, "environments side by side", at_least=1)
    num_steps: int = static_setting(8, "steps of each environment per update", at_least=1)
    learning_rate: float = traced_setting(3e-3, "learning rate", at_least=0, alias="lr")
    gamma: float = traced_setting(0.99, "discount per step", at_least=0, at_most=1)
    gae_lambda: float = traced_setting(0.95, "decay of the trace", at_least=0, at_most=1)
    vf_coef: float = traced_setting(0.5, "weight of the value loss", at_least=0)
    ent_coef: float = traced_setting(0.01, "weight of the entropy bonus", at_least=0)
    max_grad_norm: float = traced_setting(0.5, "gradients are scaled down to this norm", above=0)

    def optimizer(self) -> optax.GradientTransformation:
        """RMSProp, as published, behind clipping."""
        clip = optax.clip_by_global_norm(self.max_grad_norm)
        return optax.chain(clip, optax.rmsprop(self.learning_rate, decay=0.99, eps=1e-5))

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        """The state of the optimizer is all that A2C keeps."""
        return model, self.optimizer().init(trainable(model)[0])

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        """One gradient step on the whole rollout."""
        value, ends = transitions.decision.value, (transitions.terminated, transitions.truncated)
        following = next_values(transitions, last_value)
        advantage = estimate_advantages(
            transitions.reward, value, following, *ends, self.gamma, self.gae_lambda
        )
        batch = make_batch(model, before, transitions, advantage, advantage + value)
        units = rows_per_env(model, self.num_steps)
        rows = shuffle_rows(at.key, num_envs=self.num_envs, units=units, mesh=at.mesh)
        model, own, metrics = take_gradient_steps(
            self.loss, self.optimizer(), model, own, batch, rows, mesh=at.mesh
        )
        return model, own, mean_over_steps(metrics)

    def loss(self, model: Any, batch: Any) -> tuple[Float[Array, ""], dict[str, Array]]:
        """The policy gradient, the value's error and the entropy bonus."""
        done = batch.decision
        policy, value = forward(model, done.observation, done.action_mask, batch.memory)
        log_prob = vmap_axes(lambda d, a: d.log_prob(a), value.ndim)(policy, done.action)
        entropy = vmap_axes(lambda d: d.entropy(), value.ndim)(policy).mean()
        pg_loss = -(log_prob * batch.advantage).mean()
        vf_loss = 0.5 * jnp.square(value - batch.return_).mean()
        total = pg_loss + self.vf_coef * vf_loss - self.ent_coef * entropy
        return total, {
            "total_loss": total,
            "pg_loss": pg_loss,
            "vf_loss": vf_loss,
            "entropy": entropy,
        }


@dataclasses.dataclass(frozen=True)
class Settings:
    """The environment."""

    task: Literal["locks", "cartpole"] = setting("locks", "what to learn")


def make_env(settings: Settings) -> pm.AbstractEnv[Any]:
    """32 actions of which two are allowed, or a pole to balance (extra ``gymnax``)."""
    if settings.task == "locks":
        return MaskedLocks()
    from ppo_mask.adapters.gymnax import GymnaxEnv

    return GymnaxEnv("CartPole-v1")


TASK = Task(make_env)
DEFAULTS = RunConfig(
    Settings(),
    A2C(),
    network=NetworkSettings(hidden_dim=64),
    run=RunSettings(total_timesteps=500_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
