"""Collecting experience: the policy acts in every environment for a number of steps."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.devices.sharding import shard_over_envs
from ppo_mask.envs import VectorEnv, VectorState, VectorTimeStep
from ppo_mask.jax_tools import ArrayTree, one_for_all, rarely, split_key
from ppo_mask.networks import (
    AbstractActorCritic,
    advance,
    initial_hidden,
    reset_hidden,
    split_features,
)


class RolloutState(eqx.Module):
    """Where the environments stand, and what to act on next.

    Attributes:
        vector_state: the environments'.
        observation: what to act on.
        action_mask: what is allowed.
        hidden: a recurrent model's hidden state in each environment, else ``()``.
    """

    vector_state: VectorState[Any]
    observation: ArrayTree
    action_mask: Bool[Array, "envs actions"]
    hidden: ArrayTree


class Transition(eqx.Module):
    """One step of every environment; stacked over time, a rollout.

    Attributes:
        observation: what was acted on, seen **before** the action; of a model with features of its
            own (:class:`~ppo_mask.networks.AbstractFeatureActorCritic`), these.
        action_mask: likewise.
        action: what was drawn.
        log_prob: of the action, under the policy that drew it.
        value: estimate for the state that was acted on.
        reward: of the action.
        terminated: the action ended its episode in a terminal state.
        truncated: the action's episode was cut off.
        final_value: estimate for the state the action led to where it was truncated (and not
            terminated), else 0.
        info: the environment's facts about the step.
        episode_return: return of the step's episode so far; whole where it has ended.
        episode_length: length of the step's episode so far; whole where it has ended.
    """

    observation: ArrayTree
    action_mask: Bool[Array, "*batch actions"]
    action: Int[Array, "*batch"]
    log_prob: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    final_value: Float[Array, "*batch"]
    info: dict[str, Array]
    episode_return: Float[Array, "*batch"]
    episode_length: Int[Array, "*batch"]

    @property
    def ended(self) -> Bool[Array, "*batch"]:
        """Where the step ended an episode, either way."""
        return self.terminated | self.truncated


def start_rollout(
    vector_env: VectorEnv[Any], model: AbstractActorCritic, key: Key[Array, ""]
) -> RolloutState:
    """Starts an episode in every environment."""
    vector_state, timestep = vector_env.reset(key)
    hidden = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (vector_env.num_envs, *x.shape)), initial_hidden(model)
    )
    return RolloutState(vector_state, timestep.observation, timestep.action_mask, hidden)


def collect(
    vector_env: VectorEnv[Any],
    model: AbstractActorCritic,
    state: RolloutState,
    key: Key[Array, ""],
    num_steps: int,
    mesh: Mesh | None = None,
) -> tuple[RolloutState, Transition]:
    """Acts for ``num_steps`` in every environment; the transitions have axes [steps, envs, …].

    Each device of the mesh acts in its own environments; they need nothing of each other.
    """
    arrays, static = eqx.partition((vector_env, model), eqx.is_array)

    def act(arrays: ArrayTree, state: RolloutState, keys: Array) -> tuple[RolloutState, Transition]:
        return jax.lax.scan(partial(_act, *eqx.combine(arrays, static)), state, keys)

    # For each step of each environment: to draw the action, to step, to reset.
    keys = split_key(key, num_steps, 3, vector_env.num_envs)
    return shard_over_envs(mesh, act, (None, 0, 2), (0, 1))(arrays, state, keys)


def _act(
    vector_env: VectorEnv[Any],
    model: AbstractActorCritic,
    state: RolloutState,
    keys: Key[Array, "3 envs"],
) -> tuple[RolloutState, Transition]:
    features, unpack, network = split_features(model)
    kept = jax.vmap(features)(state.observation)
    distribution, value, hidden = jax.vmap(partial(advance, network))(
        jax.vmap(unpack)(kept), state.action_mask, state.hidden
    )
    action = jax.vmap(lambda d, k: d.sample(k))(distribution, keys[0])
    log_prob = jax.vmap(lambda d, a: d.log_prob(a))(distribution, action)
    vector_state, timestep = vector_env.step_with(keys[1:], state.vector_state, action)
    transition = Transition(
        observation=kept,
        action_mask=state.action_mask,
        action=action,
        log_prob=log_prob,
        value=value,
        reward=timestep.reward,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
        final_value=_values_where(
            timestep.truncated & ~timestep.terminated,
            model,
            timestep.final_observation,
            state.action_mask,
            hidden,
        ),
        info=timestep.info,
        episode_return=timestep.episode_return,
        episode_length=timestep.episode_length,
    )
    return next_rollout_state(network, vector_state, timestep, hidden), transition


def next_rollout_state(
    model: AbstractActorCritic,
    vector_state: VectorState[Any],
    timestep: VectorTimeStep,
    hidden: ArrayTree,
) -> RolloutState:
    """Where the environments stand after a step, from what they and the model made of it."""
    hidden = reset_hidden(model, timestep.ended, hidden)
    return RolloutState(vector_state, timestep.observation, timestep.action_mask, hidden)


def bootstrap_values(
    model: AbstractActorCritic, state: RolloutState, mesh: Mesh | None = None
) -> Float[Array, " envs"]:
    """The model's estimates for what is to be acted on next."""
    arrays, static = eqx.partition(model, eqx.is_array)

    def estimate(arrays: ArrayTree, *seen: ArrayTree) -> Array:
        return jax.vmap(partial(advance, eqx.combine(arrays, static)))(*seen)[1]

    estimates = shard_over_envs(mesh, estimate, (None, 0, 0, 0), 0)
    return estimates(arrays, state.observation, state.action_mask, state.hidden)


def _values_where(
    wanted: Bool[Array, " envs"],
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, "envs actions"],
    hidden: ArrayTree,
) -> Float[Array, " envs"]:
    """The model's values in the rows wanted, computed for those alone; 0 in the others."""
    weights, static = eqx.partition(model, eqx.is_array)
    # Nothing is left to choose where an episode has ended: the protocol's mask there is all True.
    everything = jnp.ones_like(action_mask[0])

    def value(operand: ArrayTree) -> Float[Array, ""]:
        weights, *seen = operand
        return advance(eqx.combine(weights, static), *seen)[1]

    def one(wanted: Array, observation: ArrayTree, hidden: ArrayTree) -> Array:
        operand = (weights, observation, everything, hidden)
        # For an environment that never truncates the compiler sees that none is wanted, whatever
        # happens, and leaves the network out.
        return jax.lax.cond(
            one_for_all(jnp.any, wanted),
            lambda: rarely(wanted, value, operand, jnp.zeros(())),
            lambda: jnp.zeros(()),
        )

    return jax.vmap(one)(wanted, observation, hidden)
