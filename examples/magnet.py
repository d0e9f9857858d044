"""Self-play in poker that comes to rest: PPO with a magnet, an older copy of the policy.

``python examples/magnet.py`` trains on Kuhn poker, ``--game leduc`` on Leduc poker, against a copy
of the learner. In games with hidden cards, plain self-play goes round in circles. A policy that is
held near an older copy of itself, which follows slowly, comes to a policy that nobody can exploit
(Sokota et al. 2023, arXiv:2206.05825; Rudolph et al. 2025, arXiv:2502.08938).
"""

import dataclasses
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import ppo_mask as pm
from poker import Kuhn, Leduc
from ppo_mask.games import Seat, random_opponent
from ppo_mask.networks import forward, trainable, vmap_axes
from ppo_mask.ppo import ppo_loss
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import (
    SelfPlay,
    make_batch,
    mean_over_steps,
    rows_per_env,
    shuffle_rows,
    static_setting,
    take_gradient_steps,
    traced_setting,
)


class MagnetState(eqx.Module):
    """The optimizer's state, and the magnet."""

    opt_state: Any
    magnet: Any


class Magnet(pm.AbstractAlgorithm):
    """PPO, and a pull to an older copy of the policy."""

    num_envs: int = static_setting(256, "environments side by side", at_least=1)
    num_steps: int = static_setting(32, "steps of each environment per update", at_least=1)
    num_minibatches: int = static_setting(4, "parts of a rollout", at_least=1)
    update_epochs: int = static_setting(4, "passes over each rollout", at_least=1)
    learning_rate: float = traced_setting(1e-3, "learning rate", at_least=0, alias="lr")
    final_lr: float = traced_setting(0.0, "learning rate at the end of the run", at_least=0)
    gamma: float = traced_setting(1.0, "discount per step", at_least=0, at_most=1)
    gae_lambda: float = traced_setting(0.95, "decay of the trace", at_least=0, at_most=1)
    ent_coef: float = traced_setting(0.0, "weight of the entropy bonus", at_least=0)
    magnet_coef: float = traced_setting(0.5, "weight of the pull to the magnet", at_least=0)
    refresh: int = static_setting(20, "updates between two copies of the policy", at_least=1)

    @property
    def ppo(self) -> pm.PPO:
        """The rest of the algorithm."""
        same = ("num_envs", "num_steps", "num_minibatches", "update_epochs", "gamma")
        more = {name: getattr(self, name) for name in (*same, "gae_lambda", "ent_coef")}
        return pm.PPO(learning_rate=self.learning_rate, **more)

    def check(self, model: Any, num_devices: int) -> None:
        """As PPO's."""
        self.ppo.check(model, num_devices)

    def optimizer(self) -> optax.GradientTransformation:
        """Adam, without the learning rate."""
        return optax.chain(optax.clip_by_global_norm(0.5), optax.scale_by_adam(eps=1e-5))

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        """The magnet begins as the policy."""
        return model, MagnetState(self.optimizer().init(trainable(model)[0]), model)

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        """PPO's gradient steps with another loss; then the magnet may follow."""
        _, advantage = self.ppo.estimate(None, transitions, last_value)
        return_ = advantage + transitions.decision.value
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        batch = make_batch(model, before, transitions, advantage, return_)
        rows = shuffle_rows(
            at.key,
            num_envs=self.num_envs,
            units=rows_per_env(model, self.num_steps),
            num_minibatches=self.num_minibatches,
            epochs=self.update_epochs,
            mesh=at.mesh,
        )
        rate = self.final_lr - self.learning_rate
        rate = self.learning_rate + rate * at.update / at.total_updates
        model, opt_state, metrics = take_gradient_steps(
            eqx.Partial(self.loss, own.magnet),
            self.optimizer(),
            model,
            own.opt_state,
            batch,
            rows,
            step_sizes=jnp.full(len(rows), rate, jnp.float32),
            mesh=at.mesh,
        )
        due = (at.update + 1) % self.refresh == 0
        arrays, static = eqx.partition(own.magnet, eqx.is_array)
        newer = jax.tree.map(
            lambda old, new: jnp.where(due, new, old), arrays, eqx.filter(model, eqx.is_array)
        )
        own = MagnetState(opt_state, eqx.combine(newer, static))
        return model, own, mean_over_steps(metrics)

    def loss(
        self, magnet: Any, model: Any, batch: Any
    ) -> tuple[Float[Array, ""], dict[str, Array]]:
        """PPO's loss, and the KL divergence from the magnet over the allowed actions."""
        total, metrics = ppo_loss(model, batch, self.ppo)
        inputs = batch.decision.observation, batch.decision.action_mask, batch.memory
        (policy, value), (older, _) = forward(model, *inputs), forward(magnet, *inputs)
        kl = vmap_axes(lambda new, old: new.kl(old), value.ndim)(policy, older).mean()
        total += self.magnet_coef * kl
        return total, {**metrics, "total_loss": total, "magnet_kl": kl}


@dataclasses.dataclass(frozen=True)
class Settings:
    """The game."""

    game: Literal["kuhn", "leduc"] = setting("kuhn", "which poker to play")


def make_env(settings: Settings) -> Seat:
    """Random play is the opponent of evaluations."""
    return Seat(Kuhn() if settings.game == "kuhn" else Leduc(), random_opponent)


TASK = Task(make_env, curriculum=lambda _: SelfPlay(lambda env: env.opponent, every=1))
DEFAULTS = RunConfig(
    Settings(),
    Magnet(),
    network=NetworkSettings(hidden_dim=64),
    run=RunSettings(total_timesteps=5_000_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
