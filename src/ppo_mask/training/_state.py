"""The state of a whole run, and its placement on devices."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax.sharding import Mesh
from jaxtyping import Array, Int

from ppo_mask.devices.sharding import device_put, env_sharding, replicate, replicated_sharding
from ppo_mask.jax_tools import ArrayTree, strong_types
from ppo_mask.networks import (
    AbstractActorCritic,
    BFloat16ActorCritic,
    NormalizedActorCritic,
    split_features,
    trainable,
)
from ppo_mask.ppo import Algorithm, LearnerState, PPOConfig, UpdateDiagnostics
from ppo_mask.training._metrics import Metric, MetricTotals


class TrainState(eqx.Module):
    """Everything that changes during a run; a checkpoint holds all of it.

    The leaves are arrays (some are typed keys) and functions in the model, such as activations.

    Attributes:
        learner: model, optimizer, environments, key and update count.
        totals: sums of metrics since the last log line.
        memory: the curriculum's memory, such as the opponent in self-play; ``()`` if empty.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> trainer = pm.Trainer(env, pm.PPOConfig(num_envs=4, num_steps=8))
        >>> model = pm.MLPActorCritic.for_env(env, key=jax.random.key(0))
        >>> state = trainer.init(model, jax.random.key(1))
        >>> int(state.update), state.model.num_actions
        (0, 32)
    """

    learner: LearnerState
    totals: MetricTotals
    memory: ArrayTree = ()

    def __repr__(self) -> str:
        update = self.update if self.update.ndim == 0 else list(self.update)
        return f"TrainState(update {update}, {type(self.model).__name__})"

    @property
    def model(self) -> AbstractActorCritic:
        """The current network."""
        return self.learner.model

    @property
    def update(self) -> Int[Array, "*seeds"]:
        """Updates done; one number for each seed in a stacked state."""
        return self.learner.num_updates


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
    arrays, rest = eqx.partition(state, eqx.is_array)
    arrays = jax.lax.with_sharding_constraint(arrays, shardings_of(state, mesh))
    return eqx.combine(arrays, rest)


def shardings_of(state: TrainState, mesh: Mesh) -> TrainState:
    """Returns each array's sharding: environments are split, everything else is replicated."""

    def of_envs(state: TrainState) -> Any:
        scaler = state.learner.reward_scaler
        returns = () if scaler is None else (scaler.discounted_return,)
        return state.learner.rollout, *returns

    everywhere, apart = replicated_sharding(mesh), env_sharding(mesh)
    shardings = jax.tree.map(lambda _: everywhere, eqx.filter(state, is_array_or_shape))
    envs = jax.tree.map(lambda _: apart, of_envs(shardings))
    return eqx.tree_at(of_envs, shardings, envs)


def replace_totals(state: TrainState, totals: MetricTotals, mesh: Mesh | None) -> TrainState:
    """Replaces the sums of metrics.

    The new arrays go to the devices of the old ones. Otherwise the next chunk would compile again,
    since a program is compiled for the devices of its arguments.
    """
    if mesh is not None:
        totals = replicate(totals, mesh)
    elif state.totals.updates.committed:
        totals = jax.device_put(totals, state.totals.updates.sharding)
    return eqx.tree_at(lambda s: s.totals, state, totals)


def check_state(
    state: TrainState,
    config: PPOConfig,
    algorithm: Algorithm,
    metrics: Mapping[str, Metric],
    memory: ArrayTree,
) -> None:
    """Checks that a state, which may be traced, fits the parts of a trainer.

    Raises:
        ValueError: the state does not fit; the message names the part that differs.
    """
    learner, gathered = state.learner, state.totals
    tx = algorithm.make_optimizer(config)
    opt_state = eqx.filter_eval_shape(tx.init, trainable(learner.model)[0])
    normalized, short = _wrappers(learner.model)
    parts = [
        ("optimizer state", _shapes(learner.opt_state), _shapes(opt_state)),
        ("metrics", sorted(gathered.steps.metrics), sorted(metrics)),
        ("optimizer", gathered.diagnostics.lr is None, algorithm.optimizer is not None),
        ("num_envs", len(learner.rollout.action_mask), config.num_envs),
        ("curriculum", _shapes(state.memory), _shapes(memory)),
        ("normalize_rewards", learner.reward_scaler is not None, config.normalize_rewards),
        # A model may bring its own statistics and precision.
        ("normalize_observations", normalized, normalized or config.normalize_observations),
        ("bfloat16", short, short or config.precision == "bfloat16"),
    ]
    for name, have, want in parts:
        if have != want:
            raise _another_trainer(name, have, want)


def _wrappers(model: AbstractActorCritic) -> tuple[bool, bool]:
    """Whether a model normalizes observations, and whether it computes in bfloat16."""
    network = split_features(model)[2]
    if normalized := isinstance(network, NormalizedActorCritic):
        network = network.network
    return normalized, isinstance(network, BFloat16ActorCritic)


def check_metrics(state: TrainState, diagnostics: UpdateDiagnostics) -> None:
    """Checks that a state, which may be traced, has the metrics that the loss returns."""
    have, want = sorted(state.totals.diagnostics.extra), sorted(diagnostics.extra)
    if have != want:
        raise _another_trainer("metrics of the loss", have, want)


_NOT_PRINTED = ("optimizer", "optimizer state", "curriculum")


def _another_trainer(name: str, have: Any, want: Any) -> ValueError:
    both = "" if name in _NOT_PRINTED else f" ({have}, this one: {want})"
    return ValueError(
        f"the state is of a Trainer with another {name}{both}: begin with this trainer's init, or "
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
