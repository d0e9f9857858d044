"""Running mean and variance, and their use to normalize observations.

Statistics are part of the train state, and so of checkpoints. PPO updates the statistics once per
update, from the rollout. Statistics get no gradients, and acting does not change statistics.
"""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.errors import warn
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import (
    AbstractActorCritic,
    AbstractWrappedActorCritic,
    advance,
    replace_network,
    split_features,
)
from ppo_mask.networks._distribution import AbstractMaskedDistribution

_EPSILON = 1e-8
_LIMIT = 10.0


class RunningMoments(eqx.Module):
    """The elementwise mean and variance of all arrays so far.

    Batches are merged as in Chan, Golub and LeVeque (1983). Each merge is a weighted mean, not a
    growing sum; only the count grows. In float32 the count stops growing after 2²⁴ batches; from
    then on, older batches slowly lose weight.

    Args:
        shape: the shape of one array.

    Attributes:
        mean: 0 at first.
        variance: the population variance; 1 at first.
        count: number of arrays.
    """

    mean: Float[Array, "*shape"]
    variance: Float[Array, "*shape"]
    count: Float[Array, ""]

    def __init__(self, shape: Sequence[int]):
        self.mean = jnp.zeros(tuple(shape), jnp.float32)
        self.variance = jnp.ones(tuple(shape), jnp.float32)
        self.count = jnp.zeros((), jnp.float32)

    @property
    def deviation(self) -> Float[Array, "*shape"]:
        """Standard deviation; never quite 0, so that divisions by it are safe."""
        return jnp.sqrt(self.variance + _EPSILON)

    def update(self, batch: Float[Array, "batch *shape"]) -> "RunningMoments":
        """Merges a batch into the moments."""
        batch = batch.astype(jnp.float32)
        # Two passes: the second pass corrects the rounding error of the first mean.
        mean = batch.mean(axis=0)
        residual = batch - mean[None]
        correction = residual.mean(axis=0)
        mean = mean + correction
        variance = jnp.maximum(jnp.square(residual).mean(axis=0) - jnp.square(correction), 0)

        count = self.count + batch.shape[0]
        weight = batch.shape[0] / count
        shift = mean - self.mean
        spread = weight * (1 - weight) * jnp.square(shift)
        new = (
            self.mean + weight * shift,
            (1 - weight) * self.variance + weight * variance + spread,
            count,
        )
        return eqx.tree_at(lambda m: (m.mean, m.variance, m.count), self, new)


@final
class NormalizedActorCritic(AbstractWrappedActorCritic):
    """A network whose observations are shifted and scaled to mean 0 and variance 1.

    Each entry of the observation has its own statistics, and normalized entries are clipped to ±10.
    Leaves of the observation that are not floats stay as they are.

    Only :func:`update_statistics` changes the statistics. PPO calls this function after an update's
    gradient steps, so that acting and learning use the same statistics.

    Args:
        shapes: the shape of each float leaf of an observation, in the order of ``jax.tree.leaves``.
        key: not used.

    Attributes:
        network: the trainable network.
        moments: statistics of each float leaf, in the order of ``jax.tree.leaves``.
    """

    network: AbstractActorCritic
    moments: tuple[RunningMoments, ...]

    def __init__(
        self,
        network: AbstractActorCritic,
        shapes: Sequence[Sequence[int]],
        *,
        key: Key[Array, ""] | None = None,
    ):
        del key  # Loading passes a key to every network's constructor; nothing here is random.
        self.network = network
        self.moments = tuple(RunningMoments(shape) for shape in shapes)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        shapes = [list(moments.mean.shape) for moments in self.moments]
        return {"network": self.network, "shapes": shapes}

    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
        leaves, structure = jax.tree.flatten(observation)
        if (count := len(_floats(leaves))) != len(self.moments):
            raise ValueError(
                f"the network normalizes {len(self.moments)} arrays of floats, but the observation "
                f"has {count}: give numbers the dtypes that they had in training"
            )
        floats = iter(self.moments)
        leaves = [_standardized(x, next(floats)) if _is_float(x) else x for x in leaves]
        inputs = jax.tree.unflatten(structure, leaves)
        return advance(self.network, inputs, action_mask, hidden)


def add_normalization(model: AbstractActorCritic, observation: ArrayTree) -> AbstractActorCritic:
    """Wraps the trainable network in a :class:`NormalizedActorCritic` with initial statistics.

    Args:
        model: the model to train. A model that is already normalized stays as it is.
        observation: any batch of observations; only their shapes and dtypes matter. Only floats are
            normalized; a warning names the integer leaves.
    """
    features, unpack, network = split_features(model)
    if isinstance(network, NormalizedActorCritic):
        return model
    inputs = jax.eval_shape(jax.vmap(lambda x: unpack(features(x))), observation)
    shapes = [x.shape[1:] for x in _floats(inputs)]
    leaves = jax.tree_util.tree_leaves_with_path(inputs)
    integers = [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')} ({x.dtype})".strip()
        for path, x in leaves
        if jnp.issubdtype(x.dtype, jnp.integer)
    ]
    if not shapes:
        dtypes = ", ".join(sorted({str(x.dtype) for _, x in leaves}))
        warn(f"normalize_observations does nothing: it is for floats, and there is only {dtypes}")
    elif integers:
        warn(f"normalize_observations leaves integers as they are: {', '.join(integers)}")
    network = NormalizedActorCritic(network, shapes)
    return replace_network(model, network)


def update_statistics(model: AbstractActorCritic, observation: ArrayTree) -> AbstractActorCritic:
    """Merges a rollout into a model's statistics, if the model has any.

    Works step by step to save memory, because a rollout may be hundreds of megabytes.

    Args:
        model: any model.
        observation: the rollout's observations as in :class:`~ppo_mask.acting.Decision`; leaves have
            axes [steps, envs, …].
    """
    _, unpack, network = split_features(model)
    if not isinstance(network, NormalizedActorCritic):
        return model

    def step(moments: ArrayTree, kept: ArrayTree) -> tuple[ArrayTree, None]:
        leaves = _floats(jax.vmap(unpack)(kept))
        return tuple(m.update(x) for m, x in zip(moments, leaves, strict=True)), None

    moments, _ = jax.lax.scan(step, network.moments, observation)
    return replace_network(model, eqx.tree_at(lambda n: n.moments, network, moments))


def trainable(model: AbstractActorCritic) -> tuple[ArrayTree, Any]:
    """Splits a model into the arrays to train (all floats except statistics) and the rest.

    Returns:
        Two trees of the model's structure; ``eqx.combine`` joins them.
    """

    def is_moments(x: Any) -> bool:
        return isinstance(x, RunningMoments)

    trained = jax.tree.map(
        lambda x: not is_moments(x) and eqx.is_inexact_array(x), model, is_leaf=is_moments
    )
    return eqx.partition(model, trained)


def _floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _standardized(x: Float[Array, "*shape"], moments: RunningMoments) -> Float[Array, "*shape"]:
    scaled = (x.astype(jnp.float32) - moments.mean) / moments.deviation
    return jnp.clip(scaled, -_LIMIT, _LIMIT).astype(x.dtype)
