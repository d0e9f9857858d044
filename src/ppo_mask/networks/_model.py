"""A model: a network behind a reader, with normalization and precision."""

import dataclasses
from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_mask.errors import WrongPart, naming, warn
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._parts import as_floats, check_changes, parts_of
from ppo_mask.jax_tools._trees import strong_types, widen_floats
from ppo_mask.networks._actor_critic import AbstractActorCritic, AbstractRecurrentActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution
from ppo_mask.networks._moments import RunningMoments
from ppo_mask.networks._reader import AbstractReader

Result = tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]

PRECISIONS = ("float32", "bfloat16")


def _as_moments(given: Sequence[Any]) -> tuple[RunningMoments, ...]:
    return tuple(x if isinstance(x, RunningMoments) else RunningMoments(x) for x in given)


@final
class Model(eqx.Module):
    """A policy and a value function: a network, and the reader of the observations that it gets.

    Call a model with one observation; ``jax.vmap`` evaluates a batch. A trainer trains the floats
    of ``network`` (:func:`trainable`) and nothing else.

    With the precision "bfloat16", each call rounds the network's parameters, and the floats of its
    inputs and of the hidden state, to bfloat16 (Micikevicius et al. 2018, arXiv:1710.03740).
    Parameters stay in float32 for the optimizer, and the results are float32: the logits, the
    value, and the next hidden state. The library's linear layers sum their products in float32.

    Attributes:
        reader: turns an observation into the network's inputs.
        network: the policy and value network.
        moments: statistics by which each array of floats that the reader unpacks is normalized to
            mean 0 and variance 1, then clipped to ±10; empty not to normalize. The constructor also
            takes shapes. Only :func:`update_statistics` changes them.
        precision: of the network's matrix products, "float32" or "bfloat16".

    Raises:
        ValueError: there is no such precision.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> model = pm.network_for(pm.envs.probes.MaskedLocks(keys=2), key=jax.random.key(0))
        >>> distribution, value = model(jnp.ones(1), jnp.arange(4) == 3)
        >>> print(distribution.probs)
        [0. 0. 0. 1.]
    """

    reader: AbstractReader
    network: AbstractActorCritic
    moments: tuple[RunningMoments, ...] = eqx.field(default=(), converter=_as_moments)
    precision: str = eqx.field(static=True, default="float32")

    def __check_init__(self) -> None:
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision must be {' or '.join(PRECISIONS)}, got {self.precision!r}")

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The constructor's arguments, with shapes as moments; a saved policy stores them."""
        shapes = [list(moments.mean.shape) for moments in self.moments]
        parts = {"reader": self.reader, "network": self.network}
        return {**parts, "moments": shapes, "precision": self.precision}

    def __repr__(self) -> str:
        return f"Model({self.description}, {self.num_parameters:,} parameters)"

    @property
    def num_parameters(self) -> int:
        """The number of floats that are trained."""
        return sum(x.size for x in jax.tree.leaves(trainable(self)[0]))

    @property
    def description(self) -> str:
        """The network's class, and how the model uses it."""
        words = [type(self.network).__name__, *(["normalized"] if self.moments else [])]
        return ", ".join(words + ([] if self.precision == "float32" else [self.precision]))

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        """Evaluates one observation; that of a recurrent network as the first of an episode.

        Args:
            observation: the observation of one environment.
            action_mask: True where an action is allowed.

        Returns:
            The distribution over the allowed actions, and the state's value.
        """
        return self.advance(observation, action_mask, self.initial_hidden())[:2]

    def initial_hidden(self) -> ArrayTree:
        """Returns the hidden state at the start of an episode; ``()`` if not recurrent."""
        network = self.network
        if isinstance(network, AbstractRecurrentActorCritic):
            return strong_types(network.initial_hidden())
        return ()

    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> Result:
        """Evaluates one step of an episode, whether the network is recurrent or not.

        Args:
            observation: the observation of one environment.
            action_mask: True where an action is allowed.
            hidden: from :meth:`initial_hidden`, or from the episode's previous step.

        Returns:
            The distribution, the value in float32, and the hidden state for the next step.
        """
        return self.decide(self.reader.features(observation), action_mask, hidden)

    def decide(
        self, features: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> Result:
        """Does what :meth:`advance` does, given what the reader has kept of the observation."""
        network, inputs, before = self.network, self.inputs(features), hidden
        if self.precision == "bfloat16":
            network, inputs, before = jax.tree.map(_rounded, (network, inputs, before))
        who = f"the network {type(network).__name__}"
        wanted = f"{who} must give a masked distribution and a value"
        with naming(who):
            if isinstance(network, AbstractRecurrentActorCritic):
                result = network.advance(inputs, action_mask, before)
                wanted += ", and the next hidden state"
                distribution, value, after = parts_of(wanted, result, 3)
                check_changes(who, "its hidden state", *map(widen_floats, (hidden, after)))
                hidden = jax.tree.map(lambda old, new: new.astype(old.dtype), hidden, after)
            else:
                distribution, value = parts_of(wanted, network(inputs, action_mask), 2)
        if not isinstance(distribution, AbstractMaskedDistribution):
            raise WrongPart(wanted)
        value = as_floats(value, (), f"{who} must give a value of one number; it gives")
        return distribution, value.astype(jnp.float32), hidden

    def inputs(self, features: ArrayTree) -> ArrayTree:
        """Computes the network's inputs from what the reader has kept of an observation.

        Raises:
            ValueError: the model is normalized, and there is another number of arrays of floats.
        """
        numbers = self.reader.unpack(features)
        if self.moments:
            leaves, structure = jax.tree.flatten(numbers)
            if (count := len(_floats(leaves))) != len(self.moments):
                raise ValueError(
                    f"the model normalizes {len(self.moments)} arrays of floats, but the "
                    f"observation has {count}: give numbers the dtypes that they had in training"
                )
            moments = iter(self.moments)
            leaves = [next(moments).standardize(x) if _is_float(x) else x for x in leaves]
            numbers = jax.tree.unflatten(structure, leaves)
        return self.reader.join(numbers)


def is_recurrent(model: Model) -> bool:
    """Whether a model has a hidden state."""
    return bool(jax.tree.leaves(model.initial_hidden()))


def trainable(module: Any) -> tuple[ArrayTree, Any]:
    """Splits a module into the arrays to train and the rest.

    Args:
        module: any tree. Of a model, only the network is trained; else all floats are.

    Returns:
        Two trees of the module's structure; ``eqx.combine`` joins them.
    """

    def are_trained(node: Any) -> Any:
        if not isinstance(node, Model):
            return eqx.is_inexact_array(node)
        nothing = jax.tree.map(lambda _: False, node)
        return eqx.tree_at(lambda model: model.network, nothing, are_all_trained(node.network))

    def are_all_trained(module: Any) -> Any:
        return jax.tree.map(are_trained, module, is_leaf=lambda x: isinstance(x, Model))

    return eqx.partition(module, are_all_trained(module))


def to_bfloat16(model: Model) -> Model:
    """Returns the model with matrix products in bfloat16."""
    return dataclasses.replace(model, precision="bfloat16")


def add_normalization(model: Model, observation: ArrayTree) -> Model:
    """Returns the model with normalized inputs, and initial statistics.

    Args:
        model: the model to train. A model that is already normalized stays as it is.
        observation: any batch of observations; only their shapes and dtypes matter. Only floats are
            normalized; a warning names the integer leaves.
    """
    if model.moments:
        return model
    reader = model.reader
    numbers = jax.eval_shape(jax.vmap(lambda x: reader.unpack(reader.features(x))), observation)
    leaves = jax.tree_util.tree_leaves_with_path(numbers)
    integers = [
        f"{jax.tree_util.keystr(path, simple=True, separator='.')} ({x.dtype})".strip()
        for path, x in leaves
        if jnp.issubdtype(x.dtype, jnp.integer)
    ]
    floats = _floats(numbers)
    if not floats:
        dtypes = ", ".join(sorted({str(x.dtype) for _, x in leaves}))
        warn(f"normalize_observations does nothing: it is for floats, and there is only {dtypes}")
    elif integers:
        warn(f"normalize_observations leaves integers as they are: {', '.join(integers)}")
    return dataclasses.replace(model, moments=tuple(RunningMoments(x.shape[1:]) for x in floats))


def update_statistics(model: Model, features: ArrayTree) -> Model:
    """Merges a rollout into a model's statistics, if the model has any.

    Works step by step to save memory, because a rollout may be hundreds of megabytes.

    Args:
        model: any model.
        features: what a rollout keeps, as in :class:`~ppo_mask.acting.Decision`; leaves have axes
            [steps, envs, …].
    """
    if not model.moments:
        return model

    def step(moments: ArrayTree, kept: ArrayTree) -> tuple[ArrayTree, None]:
        leaves = _floats(jax.vmap(model.reader.unpack)(kept))
        return tuple(m.update(x) for m, x in zip(moments, leaves, strict=True)), None

    return dataclasses.replace(model, moments=jax.lax.scan(step, model.moments, features)[0])


def _floats(tree: Any) -> list[Any]:
    return [x for x in jax.tree.leaves(tree) if _is_float(x)]


def _is_float(x: Any) -> bool:
    return jnp.issubdtype(x.dtype, jnp.floating)


def _rounded(x: Any) -> Any:
    return x.astype(jnp.bfloat16) if eqx.is_array(x) and _is_float(x) else x


class Memory(eqx.Module):
    """The inputs of a recurrent model in a rollout, besides observations and masks.

    Attributes:
        hidden: the model's hidden state before the rollout's first step.
        ended: True where a step ended its episode; the hidden state is reset after this step.
    """

    hidden: ArrayTree
    ended: Bool[Array, "*envs steps"]


def reset_hidden(model: Model, ended: Bool[Array, "*envs"], hidden: ArrayTree) -> ArrayTree:
    """Resets hidden states where an episode has ended.

    Args:
        model: the model, which has the initial hidden state.
        ended: True where an episode has ended.
        hidden: arrays whose leading axes are those of ``ended``.
    """

    def one(old: Array, initial: Array) -> Array:
        return jnp.where(ended.reshape(*ended.shape, *[1] * initial.ndim), initial, old)

    return jax.tree.map(one, hidden, model.initial_hidden())


def forward(
    model: Model,
    features: ArrayTree,
    action_mask: Bool[Array, "rows *steps actions"],
    memory: Memory | None = None,
) -> tuple[AbstractMaskedDistribution, Float[Array, "rows *steps"]]:
    """Evaluates a batch of decisions; a recurrent model runs through all steps of the rollout.

    A row is one observation or, for a recurrent model, one environment's observations.

    Args:
        model: any model.
        features: what a rollout keeps of the observations, in ``Decision.observation``, with axes
            [rows, …], or [rows, steps, …] for a recurrent model.
        action_mask: the mask of each observation.
        memory: the memory of a recurrent model, with axes [rows, …]; None for other models.
            Gradients flow back through all of an episode's steps in the rollout.

    Returns:
        Distributions and values, with axes [rows, …] or [rows, steps, …].
    """
    if memory is None:
        return jax.vmap(lambda seen, mask: model.decide(seen, mask, ())[:2])(features, action_mask)

    def step(hidden: ArrayTree, step: tuple[Any, Any, Any]) -> tuple[ArrayTree, ArrayTree]:
        features, action_mask, ended = step
        distribution, value, hidden = model.decide(features, action_mask, hidden)
        return reset_hidden(model, ended, hidden), (distribution, value)

    def through_time(*row: Any) -> Any:
        features, action_mask, memory = row
        return jax.lax.scan(step, memory.hidden, (features, action_mask, memory.ended))[1]

    return jax.vmap(through_time)(features, action_mask, memory)


def vmap_axes(function: Any, axes: int) -> Any:
    """Maps a function over the first ``axes`` axes of its arguments."""
    return function if axes == 0 else jax.vmap(vmap_axes(function, axes - 1))
