"""Phasic policy gradient on masked actions: an algorithm with a memory of several rollouts.

``python examples/ppg.py`` trains. A run that is stopped in the middle of a cycle resumes there: the
rollouts of the cycle are in the algorithm's own state, and so in every checkpoint.
"""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

import ppo_mask as pm
from a2c import Settings, make_env
from ppo_mask.devices.sharding import per_env
from ppo_mask.jax_tools import flat_numbers
from ppo_mask.networks import forward, trainable, vmap_axes
from ppo_mask.networks.layers import affine, linear, observation_shapes, size_of
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main
from ppo_mask.training import (
    mean_over_steps,
    shuffle_rows,
    static_setting,
    take_gradient_steps,
    traced_setting,
)


class AuxiliaryValue(pm.AbstractActorCritic):
    """A policy and a value, and a second value that is read off the policy's last hidden layer."""

    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    network: pm.MLPActorCritic
    head: eqx.nn.Linear

    def __init__(self, observation_size: int, num_actions: int, hidden_dim: int, *, key: Any):
        self.observation_size, self.num_actions = observation_size, num_actions
        self.hidden_dim = hidden_dim
        network_key, head_key = jax.random.split(key)
        self.network = pm.MLPActorCritic(observation_size, num_actions, hidden_dim, key=network_key)
        self.head = linear(hidden_dim, 1, 1.0, head_key)

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        """See :class:`ppo_mask.AbstractActorCritic`."""
        return self.network(observation, action_mask)

    def auxiliary(self, observation: Any) -> Float[Array, ""]:
        """The second value."""
        x = flat_numbers(observation)
        for layer in self.network.actor[:-1]:
            x = jnp.tanh(affine(layer, x))
        return affine(self.head, x)[0]


class Memory(eqx.Module):
    """What the auxiliary phase learns from: arrays with axes [rollouts, steps, envs, …]."""

    observation: Any = per_env(2)
    action_mask: Bool[Array, "rollouts steps envs actions"] = per_env(2)
    return_: Float[Array, "rollouts steps envs"] = per_env(2)


class PPGState(eqx.Module):
    """PPG's own state: PPO's, that of the auxiliary phase's optimizer, and the rollouts so far."""

    ppo: Any
    opt_state: Any
    memory: Memory


class PPG(pm.AbstractAlgorithm):
    """Phasic policy gradient (Cobbe et al. 2020, arXiv:2009.04416)."""

    num_envs: int = static_setting(64, "environments side by side", at_least=1)
    num_steps: int = static_setting(32, "steps of each environment per update", at_least=1)
    num_minibatches: int = static_setting(4, "parts of a rollout", at_least=1)
    policy_epochs: int = static_setting(2, "passes over each rollout", at_least=1)
    cycle: int = static_setting(8, "updates between two auxiliary phases", at_least=1)
    auxiliary_epochs: int = static_setting(3, "passes over a cycle's rollouts", at_least=1)
    learning_rate: float = traced_setting(1e-3, "learning rate", at_least=0, alias="lr")
    gamma: float = traced_setting(0.99, "discount per step", at_least=0, at_most=1)
    gae_lambda: float = traced_setting(0.95, "decay of the trace", at_least=0, at_most=1)
    ent_coef: float = traced_setting(0.01, "weight of the entropy bonus", at_least=0)
    clone_coef: float = traced_setting(1.0, "weight of keeping the policy as it was", at_least=0)

    @property
    def ppo(self) -> pm.PPO:
        """The policy phase."""
        same = ("num_envs", "num_steps", "num_minibatches", "learning_rate", "gamma")
        more = {name: getattr(self, name) for name in (*same, "gae_lambda", "ent_coef")}
        return pm.PPO(update_epochs=self.policy_epochs, **more)

    def check(self, model: Any, num_devices: int) -> None:
        """The memory holds no hidden states."""
        if not isinstance(model.network, AuxiliaryValue):
            raise ValueError(f"PPG trains an AuxiliaryValue, not a {type(model.network).__name__}")
        self.ppo.check(model, num_devices)

    def optimizer(self) -> optax.GradientTransformation:
        """The auxiliary phase's."""
        return optax.chain(optax.clip_by_global_norm(0.5), optax.adam(self.learning_rate, eps=1e-5))

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        """An empty memory."""
        model, ppo = self.ppo.init(model, rollout, key)

        def room(x: Array) -> Array:
            return jnp.zeros((self.cycle, self.num_steps, *x.shape), x.dtype)

        kept = jax.vmap(model.reader.features)(rollout.observation)
        observation, mask = jax.tree.map(room, (kept, rollout.action_mask))
        memory = Memory(observation, mask, room(jnp.zeros(self.num_envs)))
        return model, PPGState(ppo, self.optimizer().init(trainable(model)[0]), memory)

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        """PPO's update; at the end of a cycle, the auxiliary phase."""
        ppo_key, key = jax.random.split(at.key)
        phase = before, transitions, last_value, at._replace(key=ppo_key)
        _, advantage = self.ppo.estimate(None, transitions, last_value)
        model, ppo, metrics = self.ppo.learn(model, own.ppo, *phase)
        done = transitions.decision
        rollout = Memory(done.observation, done.action_mask, advantage + done.value)
        place = at.update % self.cycle
        memory = jax.tree.map(lambda old, new: old.at[place].set(new), own.memory, rollout)
        arrays, static = eqx.partition(model, eqx.is_array)

        def auxiliary(arrays: Any, opt_state: Any) -> Any:
            model = eqx.combine(arrays, static)
            batch = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), memory)
            rows = shuffle_rows(
                key,
                num_envs=self.num_envs,
                units=self.cycle * self.num_steps,
                num_minibatches=self.cycle * self.num_minibatches,
                epochs=self.auxiliary_epochs,
                mesh=at.mesh,
            )
            loss = eqx.Partial(self.auxiliary_loss, model)
            model, opt_state, metrics = take_gradient_steps(
                loss, self.optimizer(), model, opt_state, batch, rows, mesh=at.mesh
            )
            means = mean_over_steps(metrics)
            return eqx.filter(model, eqx.is_array), opt_state, (means["aux"], means["clone_kl"])

        def nothing(arrays: Any, opt_state: Any) -> Any:
            return arrays, opt_state, (jnp.float32(0), jnp.float32(0))

        due = place == self.cycle - 1
        arrays, opt_state, (aux, kl) = jax.lax.cond(due, auxiliary, nothing, arrays, own.opt_state)
        metrics |= {"auxiliary_loss": aux, "clone_kl": kl}
        return eqx.combine(arrays, static), PPGState(ppo, opt_state, memory), metrics

    def auxiliary_loss(self, before: Any, model: Any, batch: Memory) -> Any:
        """Both values' errors, and how far the policy has moved since the phase began."""
        inputs = batch.observation, batch.action_mask
        policy, value = forward(model, *inputs)
        second = jax.vmap(model.network.auxiliary)(jax.vmap(model.inputs)(batch.observation))
        aux = 0.5 * jnp.square(second - batch.return_).mean()
        kl = vmap_axes(lambda old, new: old.kl(new), 1)(forward(before, *inputs)[0], policy).mean()
        loss = aux + self.clone_coef * kl + 0.5 * jnp.square(value - batch.return_).mean()
        return loss, {"aux": aux, "clone_kl": kl}


def make_network(env: Any, network: NetworkSettings, key: Any) -> AuxiliaryValue:
    """A network for any observation of numbers."""
    size = size_of(observation_shapes(env))
    return AuxiliaryValue(size, env.num_actions, network.hidden_dim, key=key)


TASK = Task(make_env, make_network)
DEFAULTS = RunConfig(
    Settings(),
    PPG(),
    network=NetworkSettings(hidden_dim=64),
    run=RunSettings(total_timesteps=500_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
