"""The state of a whole run, and its placement on devices."""

import dataclasses
from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from ppo_mask.acting import RolloutState
from ppo_mask.devices.sharding import device_put, env_axes, sharding
from ppo_mask.errors import no_warnings
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._trees import strong_types
from ppo_mask.networks import Model
from ppo_mask.training._algorithm import AbstractAlgorithm
from ppo_mask.training._metrics import Metric, Sums, no_updates


class TrainState(eqx.Module):
    """Everything that changes during a run; a checkpoint holds all of it.

    The leaves are arrays (some are typed keys) and functions in the model, such as activations.

    Attributes:
        model: the policy and value function, with the reader of observations.
        own: the algorithm's own state, such as that of an optimizer.
        rollout: the environments' state after the last rollout.
        key: the random key of the next updates.
        update: updates done; one number for each seed in a stacked state.
        totals: sums of metrics since the last log line.
        memory: the curriculum's memory, such as the opponent in self-play; ``()`` if empty.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPO(num_envs=4, num_steps=8))
        >>> state = trainer.init(pm.network_for(env, key=jax.random.key(0)), jax.random.key(1))
        >>> int(state.update), state.model
        (0, Model(MLPActorCritic, 141,089 parameters))
    """

    model: Model
    own: Any
    rollout: RolloutState
    key: Key[Array, "*seeds"]
    update: Int[Array, "*seeds"]
    totals: Sums
    memory: ArrayTree = ()

    def __repr__(self) -> str:
        update = self.update if self.update.ndim == 0 else list(self.update)
        return f"TrainState(update {update}, {self.model.description})"


def place_state(state: TrainState, mesh: Mesh | None) -> TrainState:
    """Puts the state on the mesh's devices: splits environments, and replicates everything else.

    Raises:
        ValueError: the environments cannot be split evenly.
    """
    return state if mesh is None else device_put(state, shardings_of(state, mesh))


def constrain_state(state: TrainState, mesh: Mesh | None) -> TrainState:
    """Places the state as :func:`place_state` does, inside a compiled function."""
    if mesh is None or mesh.size == 1:
        return state
    shardings: Any = shardings_of(state, mesh)
    return eqx.filter_shard(state, shardings)


def shardings_of(state: TrainState, mesh: Mesh) -> TrainState:
    """Returns each array's sharding: environments are split, everything else is replicated."""
    arrays = eqx.filter(state, is_array_or_shape)
    return jax.tree.map(lambda _, axis: sharding(mesh, axis), arrays, env_axes(arrays))


def check_state(
    state: TrainState,
    algorithm: AbstractAlgorithm,
    metrics: Mapping[str, Metric],
    memory: ArrayTree,
) -> None:
    """Checks that a state, which may be traced, fits the parts of a trainer.

    Raises:
        ValueError: the state does not fit; the message names the part that differs.
    """
    have, want = len(state.rollout.action_mask), algorithm.num_envs
    if have != want:
        raise _another_trainer("num_envs", have, want)
    # What the algorithm would begin with is like what it has come to. It has warned at the start.
    with no_warnings():
        model, own = eqx.filter_eval_shape(algorithm.init, state.model, state.rollout, state.key)
    if _shapes(state.model) != _shapes(model):
        raise _another_trainer("model", state.model.description, model.description)
    for name, have, want in _parts(state.own, own):
        if _shapes(have) != _shapes(want):
            raise _another_trainer(name)
    layout, learned = state.totals.layout, state.totals.layout.learned
    wanted = eqx.filter_eval_shape(no_updates, metrics, learned, algorithm.logged_last).layout
    if layout != wanted:
        have, want = ({name for name, _ in (*x.totals, *x.maxima)} for x in (layout, wanted))
        raise _another_trainer("metrics", sorted(have - want), sorted(want - have))
    if _shapes(state.memory) != _shapes(memory):
        raise _another_trainer("curriculum")


def check_metrics(state: TrainState, metrics: Mapping[str, Any]) -> None:
    """Checks that a state, which may be traced, has the metrics that the algorithm returns."""
    have, want = sorted(state.totals.layout.learned), sorted(metrics)
    if have != want:
        raise _another_trainer("metrics of the algorithm", have, want)


def _parts(own: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Pairs the fields of two own states by name; states of two classes are one part."""
    if type(own) is not type(other) or not isinstance(own, eqx.Module):
        return [("algorithm", own, other)]
    names = [field.name for field in dataclasses.fields(own)]
    return [(name, getattr(own, name), getattr(other, name)) for name in names]


def _another_trainer(name: str, *both: Any) -> ValueError:
    have = f" ({both[0]}, this one: {both[1]})" if both else ""
    return ValueError(
        f"the state is of a Trainer with another {name}{have}: begin with this trainer's init, or "
        "train with the trainer that made it"
    )


def _shapes(tree: Any) -> Any:
    leaves, structure = jax.tree.flatten(eqx.filter(tree, is_array_or_shape))
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def is_array_or_shape(leaf: Any) -> bool:
    """Whether a leaf of a state is an array, or a ``jax.ShapeDtypeStruct`` in place of one."""
    return eqx.is_array(leaf) or isinstance(leaf, jax.ShapeDtypeStruct)


@eqx.filter_jit  # One program instead of one per shape, which saves seconds at each start.
def copy_state(state: TrainState) -> TrainState:
    """Copies the state to new buffers, which may then be donated."""
    return jax.tree.map(lambda x: jnp.copy(x) if eqx.is_array(x) else x, state)


def strongly_typed(state: TrainState) -> TrainState:
    """Removes weak types, so that new states run the same compiled program as restored ones."""
    arrays, rest = eqx.partition(state, eqx.is_array)
    return eqx.combine(strong_types(arrays), rest)
