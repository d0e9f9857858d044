"""Collecting experience: a model acts in every environment for a number of steps."""

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from ppo_mask.devices.sharding import per_env, shard_over_envs
from ppo_mask.envs import VectorEnv, VectorState, VectorTimeStep
from ppo_mask.envs.actions import Actions
from ppo_mask.jax_tools import ArrayTree, one_for_all, rarely
from ppo_mask.jax_tools._programs import split_key
from ppo_mask.networks import Model
from ppo_mask.networks._model import reset_hidden

_MANY = 256  # actions; unpacking the bits of fewer takes longer than reading their bytes


class RolloutState(eqx.Module):
    """The environments' state between two steps, and the inputs of the next action.

    Attributes:
        vector_state: the environments' state.
        observation: for the next action.
        action_mask: for the next action.
        hidden: a recurrent model's hidden state in each environment, else ``()``.
    """

    vector_state: VectorState[Any] = per_env()
    observation: ArrayTree = per_env()
    action_mask: Bool[Array, "envs actions"] = per_env()
    hidden: ArrayTree = per_env()


class Decision(eqx.Module):
    """A model's inputs, action and value; all are from **before** the action takes effect.

    Args:
        observation: what the model's reader keeps of the observation.
        action_mask: True where an action was allowed; if the environment has a ``part_mask``, the
            masks along the action's path.
        action: sampled from the policy; if MultiDiscrete, ``[*batch, parts]``.
        log_prob: log-probability of the action, under the policy that sampled it.
        value: the model's estimate for the state.

    Attributes:
        observation: as above.
        action: as above.
        log_prob: as above.
        value: as above.
    """

    observation: ArrayTree
    action: Int[Array, "*batch"] | Int[Array, "*batch parts"]
    log_prob: Float[Array, "*batch"]
    value: Float[Array, "*batch"]
    _mask: Bool[Array, "*batch actions"] | UInt8[Array, "*batch bytes"]
    _num_actions: int = eqx.field(static=True)

    def __init__(
        self,
        observation: ArrayTree,
        action_mask: Bool[Array, "*batch actions"],
        action: Int[Array, "*batch"] | Int[Array, "*batch parts"],
        log_prob: Float[Array, "*batch"],
        value: Float[Array, "*batch"],
    ):
        self.observation, self.action = observation, action
        self.log_prob, self.value = log_prob, value
        self._num_actions = action_mask.shape[-1]
        many = self._num_actions >= _MANY
        self._mask = jnp.packbits(action_mask, axis=-1) if many else action_mask

    @property
    def action_mask(self) -> Bool[Array, "*batch actions"]:
        """True where an action was allowed. Masks of many actions are kept as bits until here."""
        if self._mask.dtype == bool:
            return jnp.asarray(self._mask)
        return jnp.unpackbits(self._mask, axis=-1, count=self._num_actions).astype(bool)


class Transition(eqx.Module):
    """One step of every environment; a rollout stacks transitions over time.

    Attributes:
        decision: the decision that led to the step.
        reward: the reward of the action.
        terminated: the action ended its episode in a terminal state.
        truncated: the action's episode was cut off.
        final_value: where the episode was truncated (and not terminated), the model's estimate for
            the state after the action, under that state's own mask; elsewhere 0.
        info: the environment's ``info`` about the step.
        episode_return: undiscounted sum of rewards in the step's episode, this step included.
        episode_length: number of steps in the step's episode, this step included.
        next_observation: what the model's reader keeps of the observation after the action, before
            any reset; None unless an algorithm asks for it.
        next_action_mask: the environment's mask of that observation: where a time limit has cut the
            episode off, the mask that the next action would have had. None unless asked for.
    """

    decision: Decision
    reward: Float[Array, "*batch"]
    terminated: Bool[Array, "*batch"]
    truncated: Bool[Array, "*batch"]
    final_value: Float[Array, "*batch"]
    info: dict[str, Array]
    episode_return: Float[Array, "*batch"]
    episode_length: Int[Array, "*batch"]
    next_observation: ArrayTree | None = None
    next_action_mask: Bool[Array, "*batch actions"] | None = None

    @property
    def ended(self) -> Bool[Array, "*batch"]:
        """True where the step terminated or truncated its episode."""
        return self.terminated | self.truncated


def start_rollout(vector_env: VectorEnv[Any], model: Model, key: Key[Array, ""]) -> RolloutState:
    """Starts an episode in every environment.

    Args:
        vector_env: the environments.
        model: the model; if recurrent, it has the initial hidden state.
        key: the random key of the resets.
    """
    vector_state, timestep = vector_env.reset(key)
    hidden = jax.tree.map(
        lambda x: jnp.broadcast_to(x, (vector_env.num_envs, *x.shape)), model.initial_hidden()
    )
    return RolloutState(vector_state, timestep.observation, timestep.action_mask, hidden)


def collect(
    vector_env: VectorEnv[Any],
    model: Model,
    state: RolloutState,
    key: Key[Array, ""],
    num_steps: int,
    mesh: Mesh | None = None,
    keep_next: bool = False,
) -> tuple[RolloutState, Transition]:
    """Collects a rollout: acts for ``num_steps`` in every environment.

    Args:
        vector_env: the environments.
        model: the model that acts; actions are sampled from its policy.
        state: the state after the last rollout.
        key: the random key of actions, steps and resets.
        num_steps: steps of each environment.
        mesh: the devices that the environments are split over, if there are several. Each device
            acts in its own environments, and needs no data of other devices.
        keep_next: whether transitions have ``next_observation`` and ``next_action_mask``, which
            doubles the memory of a rollout.

    Returns:
        The state for the next rollout, and the transitions, with axes [steps, envs, …].
    """

    def act(vector_env: Any, model: Model, state: RolloutState, keys: Array) -> Any:
        numbers_of = Actions.of(vector_env.num_actions).uniform_numbers
        numbers = jax.vmap(jax.vmap(numbers_of))(keys[:, 0])
        step = partial(_act, vector_env, model, keep_next)
        return jax.lax.scan(step, state, (numbers, keys[:, 1:]))

    # For each step of each environment, three keys: to sample the action, to step, to reset.
    keys = split_key(key, num_steps, 3, vector_env.num_envs)
    on_devices = shard_over_envs(mesh, act, (None, None, 0, 2), (0, 1))
    return on_devices(vector_env, model, state, keys)


@jax.named_scope("environment_step")  # Its name in profiles.
def _act(
    vector_env: VectorEnv[Any],
    model: Model,
    keep_next: bool,
    state: RolloutState,
    random: tuple[Float[Array, "envs *parts"], Key[Array, "2 envs"]],
) -> tuple[RolloutState, Transition]:
    numbers, keys = random
    features = jax.vmap(model.reader.features)
    kept = features(state.observation)
    decide = jax.vmap(model.decide)
    distribution, value, hidden = decide(kept, state.action_mask, state.hidden)
    distribution.check_choices(vector_env.num_actions)
    action, distribution = vector_env.choose(state.vector_state, distribution, numbers)
    log_prob = jax.vmap(lambda d, a: d.log_prob(a))(distribution, action)
    vector_state, timestep = vector_env.step_with(keys, state.vector_state, action)
    transition = Transition(
        Decision(kept, distribution.mask, action, log_prob, value),
        reward=timestep.reward,
        terminated=timestep.terminated,
        truncated=timestep.truncated,
        final_value=_values_where(
            timestep.truncated & ~timestep.terminated,
            model,
            timestep.final_observation,
            timestep.final_action_mask,
            hidden,
        ),
        info=timestep.info,
        episode_return=timestep.episode_return,
        episode_length=timestep.episode_length,
        next_observation=features(timestep.final_observation) if keep_next else None,
        next_action_mask=timestep.final_action_mask if keep_next else None,
    )
    return next_rollout_state(model, vector_state, timestep, hidden), transition


def next_rollout_state(
    model: Model, vector_state: VectorState[Any], timestep: VectorTimeStep, hidden: ArrayTree
) -> RolloutState:
    """Makes the :class:`RolloutState` after a step.

    Args:
        model: the model that acted.
        vector_state: the environments' state after the step.
        timestep: the timestep of the step.
        hidden: the model's hidden state after the step. This function resets the hidden state where
            the episode has ended.
    """
    hidden = reset_hidden(model, timestep.ended, hidden)
    return RolloutState(vector_state, timestep.observation, timestep.action_mask, hidden)


def bootstrap_values(
    model: Model, state: RolloutState, mesh: Mesh | None = None
) -> Float[Array, " envs"]:
    """Estimates the values of the states in which a rollout stopped.

    Args:
        model: the model, for its value function.
        state: the state after the rollout.
        mesh: the devices that the environments are split over, if there are several.
    """

    def estimate(model: Model, *inputs: ArrayTree) -> Array:
        return jax.vmap(model.advance)(*inputs)[1]

    estimates = shard_over_envs(mesh, estimate, (None, 0, 0, 0), 0)
    return estimates(model, state.observation, state.action_mask, state.hidden)


def next_values(
    transitions: Transition, last_value: Float[Array, " envs"]
) -> Float[Array, "steps envs"]:
    """Returns the value of the state that each step of a rollout led to, before any reset.

    That of a terminal state, which is 0, is not among them: it is that of the new episode.

    Args:
        transitions: the rollout, with axes [steps, envs, …].
        last_value: the values of the states in which the rollout stopped, from
            :func:`bootstrap_values`.
    """
    following = jnp.concatenate([transitions.decision.value[1:], last_value[None]])
    return jnp.where(transitions.truncated, transitions.final_value, following)


def _values_where(
    wanted: Bool[Array, " envs"],
    model: Model,
    observation: ArrayTree,
    action_mask: Bool[Array, "envs actions"],
    hidden: ArrayTree,
) -> Float[Array, " envs"]:
    """Estimates the value of each state where ``wanted`` is True; 0 elsewhere."""
    weights, static = eqx.partition(model, eqx.is_array)

    def value(operand: ArrayTree) -> Float[Array, ""]:
        weights, *inputs = operand
        return eqx.combine(weights, static).advance(*inputs)[1]

    def one(wanted: Array, *inputs: ArrayTree) -> Array:
        operand = (weights, *inputs)
        # If an environment never truncates, the compiler finds that no value is ever wanted, and
        # drops the network here.
        return jax.lax.cond(
            one_for_all(jnp.any, wanted),
            lambda: rarely(wanted, value, operand, jnp.float32(0)),
            lambda: jnp.float32(0),
        )

    return jax.vmap(one)(wanted, observation, action_mask, hidden)
