"""PQN, Q-learning on masked actions without replay: an algorithm whose network is its own, too.

``python examples/pqn.py --task cartpole`` trains. The policy that is saved, evaluated and watched
takes the best of the allowed actions. No forbidden action is ever taken, or bootstrapped from.
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float

import ppo_mask as pm
from a2c import Settings, make_env
from ppo_mask.acting import next_values
from ppo_mask.jax_tools import flat_numbers
from ppo_mask.networks import trainable
from ppo_mask.networks.layers import activate, affine, linear, observation_shapes, size_of
from ppo_mask.ppo import estimate_advantages
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main
from ppo_mask.training import (
    make_batch,
    mean_over_steps,
    shuffle_rows,
    static_setting,
    take_gradient_steps,
    traced_setting,
)


class QNetwork(pm.AbstractActorCritic):
    """Action values. The policy prefers the best allowed action, whose value is the state's."""

    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    layers: tuple[eqx.nn.Linear, ...]

    def __init__(self, observation_size: int, num_actions: int, hidden_dim: int, *, key: Any):
        self.observation_size, self.num_actions = observation_size, num_actions
        self.hidden_dim = hidden_dim
        sizes, keys = (observation_size, hidden_dim, hidden_dim), jax.random.split(key, 3)
        hidden = [linear(sizes[i], sizes[i + 1], 2**0.5, keys[i]) for i in range(2)]
        self.layers = (*hidden, linear(hidden_dim, num_actions, 1.0, keys[2]))

    def q_values(self, observation: Any) -> Float[Array, " actions"]:
        """The value of each action, allowed or not; layer norm replaces a target network."""
        x = flat_numbers(observation)
        for layer in self.layers[:-1]:
            x = activate(layer, x, layer_norm=True)
        return affine(self.layers[-1], x)

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        """See :class:`ppo_mask.AbstractActorCritic`."""
        q = self.q_values(observation)
        best = jnp.where(action_mask, q, -jnp.inf).max()
        return pm.MaskedCategorical(q, action_mask), best


class EpsilonGreedy(pm.AbstractActorCritic):
    """Takes a random allowed action with a probability of epsilon, else the best."""

    network: QNetwork
    epsilon: Float[Array, ""]

    def __call__(self, observation: Any, action_mask: Any) -> Any:
        """See :class:`ppo_mask.AbstractActorCritic`."""
        greedy, value = self.network(observation, action_mask)
        best = jax.nn.one_hot(greedy.mode(), self.network.num_actions)
        probs = self.epsilon * action_mask / action_mask.sum() + (1 - self.epsilon) * best
        return pm.MaskedCategorical(jnp.log(probs + 1e-30), action_mask), value


class PQN(pm.AbstractAlgorithm):
    """Parallelized Q-network (Gallici et al. 2024, arXiv:2407.04811), with Q(lambda)."""

    num_envs: int = static_setting(64, "environments side by side", at_least=1)
    num_steps: int = static_setting(32, "steps of each environment per update", at_least=1)
    num_minibatches: int = static_setting(8, "gradient steps per epoch", at_least=1)
    update_epochs: int = static_setting(4, "passes over a rollout", at_least=1)
    learning_rate: float = traced_setting(5e-4, "learning rate", at_least=0, alias="lr")
    gamma: float = traced_setting(0.98, "discount per step", at_least=0, at_most=1)
    q_lambda: float = traced_setting(0.9, "decay of the trace", at_least=0, at_most=1)
    epsilon: float = traced_setting(1.0, "share of random actions at first", at_least=0, at_most=1)
    epsilon_end: float = traced_setting(0.1, "share of random actions later", at_least=0, at_most=1)
    epsilon_until: float = traced_setting(0.3, "share of the run until then", above=0, at_most=1)

    def check(self, model: Any, num_devices: int) -> None:
        """Only this network has action values."""
        if not isinstance(model.network, QNetwork):
            raise ValueError(f"PQN trains a QNetwork, not a {type(model.network).__name__}")
        pm.training.check_minibatches(
            model, self.num_envs, self.num_steps, self.num_minibatches, num_devices=num_devices
        )

    def optimizer(self) -> optax.GradientTransformation:
        """RAdam, as published, behind clipping."""
        return optax.chain(optax.clip_by_global_norm(10.0), optax.radam(self.learning_rate))

    def init(self, model: Any, rollout: Any, key: Any) -> Any:
        """The state of the optimizer is all that PQN keeps."""
        return model, self.optimizer().init(trainable(model)[0])

    def exploration(self, at: Any) -> Float[Array, ""]:
        """Epsilon falls linearly."""
        share = jnp.minimum(at.progress / self.epsilon_until, 1)
        return self.epsilon + share * (self.epsilon_end - self.epsilon)

    def actor(self, model: Any, own: Any, at: Any) -> Any:
        """Explores among the allowed actions."""
        explores = EpsilonGreedy(model.network, self.exploration(at))
        return dataclasses.replace(model, network=explores)

    def learn(
        self, model: Any, own: Any, before: Any, transitions: Any, last_value: Any, at: Any
    ) -> Any:
        """Moves the values of the actions taken toward Q(lambda) returns."""
        # With the value of a state that of its best allowed action, Peng's Q(lambda) is GAE.
        value, ends = transitions.decision.value, (transitions.terminated, transitions.truncated)
        following = next_values(transitions, last_value)
        change = estimate_advantages(
            transitions.reward, value, following, *ends, self.gamma, self.q_lambda
        )
        batch = make_batch(model, before, transitions, change, value + change)
        rows = shuffle_rows(
            at.key,
            num_envs=self.num_envs,
            units=self.num_steps,
            num_minibatches=self.num_minibatches,
            epochs=self.update_epochs,
            mesh=at.mesh,
        )
        model, own, metrics = take_gradient_steps(
            self.loss, self.optimizer(), model, own, batch, rows, mesh=at.mesh
        )
        return model, own, mean_over_steps(metrics) | {"epsilon": self.exploration(at)}

    def loss(self, model: Any, batch: Any) -> Any:
        """Half the mean squared error of the taken actions' values."""
        inputs = jax.vmap(model.inputs)(batch.decision.observation)
        q = jax.vmap(model.network.q_values)(inputs)
        taken = jnp.take_along_axis(q, batch.decision.action[:, None], axis=-1)[:, 0]
        loss = 0.5 * jnp.square(taken - batch.return_).mean()
        return loss, {"q_loss": loss, "mean_q": taken.mean()}


def make_network(env: Any, network: NetworkSettings, key: Any) -> QNetwork:
    """A network for any observation of numbers."""
    if not isinstance(env.num_actions, int):
        raise ValueError(f"PQN has one value for each action, and not for parts: {env.num_actions}")
    size = size_of(observation_shapes(env))
    return QNetwork(size, env.num_actions, network.hidden_dim, key=key)


TASK = Task(make_env, make_network)
DEFAULTS = RunConfig(
    Settings(),
    PQN(),
    network=NetworkSettings(hidden_dim=64),
    run=RunSettings(total_timesteps=500_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
