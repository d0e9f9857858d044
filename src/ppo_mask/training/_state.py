"""The state of a whole run, and where it lies."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from ppo_mask.devices.sharding import device_put, env_sharding, replicated_sharding
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.ppo import LearnerState
from ppo_mask.training._metrics import MetricTotals


class TrainState(eqx.Module):
    """All that a run is. Its leaves are arrays, typed keys among them, and the model's functions.

    Attributes:
        learner: model, optimizer, environments, key and update count.
        totals: metrics gathered since the last log line.
    """

    learner: LearnerState
    totals: MetricTotals

    @property
    def model(self) -> AbstractActorCritic:
        """The policy as it is now."""
        return self.learner.model

    @property
    def update(self) -> Int[Array, "*seeds"]:
        """Updates done; a number for each seed where several are side by side."""
        return self.learner.num_updates


def place_state(state: TrainState, mesh: Mesh | None) -> TrainState:
    """The state on the mesh's devices: environments split over them, all else on each.

    Raises:
        ValueError: the environments cannot be split evenly.
    """
    return state if mesh is None else device_put(state, _shardings(state, mesh))


def constrain_state(state: TrainState, mesh: Mesh | None) -> TrainState:
    """The same inside a compiled function."""
    if mesh is None:
        return state
    arrays, rest = eqx.partition(state, eqx.is_array)
    arrays = jax.lax.with_sharding_constraint(arrays, _shardings(state, mesh))
    return eqx.combine(arrays, rest)


def _shardings(state: TrainState, mesh: Mesh) -> TrainState:
    def of_envs(state: TrainState) -> Any:
        scaler = state.learner.reward_scaler
        returns = () if scaler is None else (scaler.discounted_return,)
        return state.learner.rollout, *returns

    everywhere, apart = replicated_sharding(mesh), env_sharding(mesh)
    shardings = jax.tree.map(lambda _: everywhere, eqx.filter(state, eqx.is_array))
    envs = jax.tree.map(lambda _: apart, of_envs(shardings))
    return eqx.tree_at(of_envs, shardings, envs)


def copy_state(state: TrainState) -> TrainState:
    """The same state in buffers of its own, which may be used up."""
    arrays, rest = eqx.partition(state, eqx.is_array)
    return eqx.combine(_copies(arrays), rest)


@jax.jit  # One program, not one for each shape there is: a second start is seconds.
def _copies(arrays: Any) -> Any:
    return jax.tree.map(jnp.copy, arrays)


def strongly_typed(state: TrainState) -> TrainState:
    """The same state without weak types, as a restored one is: one compiled program serves both."""
    return jax.tree.map(_strongly_typed, state)


def _strongly_typed(leaf: Any) -> Any:
    if not eqx.is_array(leaf) or jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return leaf
    return leaf.astype(leaf.dtype)
