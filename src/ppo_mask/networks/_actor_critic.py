"""Interfaces of actor-critics: plain, recurrent, wrapped, with a feature extractor."""

import dataclasses
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._distribution import AbstractMaskedDistribution


class AbstractActorCritic(eqx.Module):
    """A policy and a value function.

    Call a model with one observation; ``jax.vmap`` evaluates a batch. PPO trains the model's float
    arrays (:func:`trainable`).

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Linear(pm.AbstractActorCritic):
        ...     layer: eqx.nn.Linear
        ...     def __init__(self, *, key):
        ...         self.layer = eqx.nn.Linear(4, 3, key=key)
        ...     @property
        ...     def hyperparameters(self):
        ...         return {}
        ...     def __call__(self, observation, action_mask):
        ...         first, second, value = self.layer(observation)
        ...         logits = jnp.stack([first, second])
        ...         return pm.MaskedCategorical(logits, action_mask), value
        >>> model = Linear(key=jax.random.key(0))
        >>> distribution, value = model(jnp.ones(4), jnp.array([False, True]))
        >>> print(distribution.probs)
        [0. 1.]
    """

    @property
    @abstractmethod
    def hyperparameters(self) -> dict[str, Any]:
        """The constructor's arguments without the key: numbers, text, None, networks, and lists,
        tuples and dictionaries of these.

        ``type(model)(**model.hyperparameters, key=key)`` makes a model of the same structure and
        shapes. A saved policy stores these arguments as its architecture.
        """

    @abstractmethod
    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        """Evaluates one observation.

        Args:
            observation: the observation of one environment.
            action_mask: True where an action is allowed.

        Returns:
            The distribution over the allowed actions, and the state's value.
        """


class AbstractRecurrentActorCritic(AbstractActorCritic):
    """A policy with a memory: each step of an episode hands a hidden state to the next.

    The caller passes the hidden state from step to step, and starts every episode with
    :meth:`initial_hidden`. PPO backpropagates through all of an episode's steps in the rollout.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> class TakesTurns(pm.AbstractRecurrentActorCritic):
        ...     hyperparameters = {}
        ...     def initial_hidden(self):
        ...         return jnp.zeros(())
        ...     def advance(self, observation, action_mask, hidden):
        ...         logits = jnp.stack([1 - hidden, hidden])
        ...         return pm.MaskedCategorical(logits, action_mask), hidden, 1 - hidden
        >>> model, mask = TakesTurns(), jnp.ones(2, bool)
        >>> hidden = model.initial_hidden()
        >>> for step in range(3):
        ...     distribution, value, hidden = model.advance(jnp.ones(4), mask, hidden)
        ...     print(distribution.mode())
        0
        1
        0
    """

    @abstractmethod
    def initial_hidden(self) -> ArrayTree:
        """The hidden state at the start of an episode: arrays of floats."""

    @abstractmethod
    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
        """Evaluates one step of an episode.

        Args:
            observation: the observation of one environment.
            action_mask: True where an action is allowed.
            hidden: from :meth:`initial_hidden`, or from the episode's previous step.

        Returns:
            The distribution, the value, and the hidden state for the episode's next step.
        """

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        """Evaluates the first step of an episode, with the initial hidden state."""
        return self.advance(observation, action_mask, self.initial_hidden())[:2]


class AbstractWrappedActorCritic(AbstractActorCritic):
    """A wrapper around a network; recurrent if and only if the network is.

    Attributes:
        network: the wrapped network.
    """

    network: eqx.AbstractVar[AbstractActorCritic]

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """The wrapped network and the wrapper's static fields."""
        return {"network": self.network, **static_fields(self)}

    @abstractmethod
    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
        """Evaluates one step, as the function :func:`advance` does."""

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        return self.advance(observation, action_mask, initial_hidden(self.network))[:2]


class AbstractFeatureActorCritic(AbstractWrappedActorCritic):
    """A network behind a fixed feature extractor without parameters.

    The features are computed once for each step and stored in the rollout. :meth:`unpack` then runs
    for one minibatch at a time. The library's wrappers, such as normalization, go between the
    extractor and the network, so the extractor gets the environment's observation unchanged.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Board(pm.AbstractFeatureActorCritic):
        ...     network: pm.AbstractActorCritic
        ...     def __init__(self, network, *, key=None):
        ...         self.network = network
        ...     def features(self, observation):
        ...         return observation.astype(jnp.uint8)  # A byte for each cell in the rollout.
        ...     def unpack(self, features):
        ...         return features / 255
        >>> network = pm.MLPActorCritic(9, 4, hidden_dim=8, key=jax.random.key(0))
        >>> distribution, value = Board(network)(jnp.arange(9), jnp.arange(4) == 2)
        >>> print(distribution.probs)
        [0. 0. 1. 0.]
    """

    @abstractmethod
    def features(self, observation: ArrayTree) -> ArrayTree:
        """Computes one observation's features; a rollout stores them, so they should be small."""

    @abstractmethod
    def unpack(self, features: ArrayTree) -> ArrayTree:
        """Converts one observation's features to the network's input."""

    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
        inputs = self.unpack(self.features(observation))
        return advance(self.network, inputs, action_mask, hidden)


def static_fields(module: eqx.Module) -> dict[str, Any]:
    """Returns a module's static fields by name; for most networks, these are the hyperparameters.

    Args:
        module: a network whose constructor has an argument for each of its static fields.
    """
    fields = dataclasses.fields(module)
    return {x.name: getattr(module, x.name) for x in fields if x.metadata.get("static")}


def count_parameters(model: AbstractActorCritic) -> int:
    """Counts a model's floats, trained or not."""
    return sum(x.size for x in jax.tree.leaves(eqx.filter(model, eqx.is_inexact_array)))


def describe_model(model: AbstractActorCritic) -> str:
    """Names a model's class, and the classes of the networks that it wraps."""
    name = type(model).__name__
    if isinstance(model, AbstractWrappedActorCritic):
        return f"{name} of {describe_model(model.network)}"
    return name


def advance(
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, " actions"],
    hidden: ArrayTree,
) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
    """Evaluates one step of any model, recurrent or not.

    Args:
        model: any model.
        observation: the observation of one environment.
        action_mask: True where an action is allowed.
        hidden: from :func:`initial_hidden`, or from the episode's previous step.

    Returns:
        The distribution, the value in float32, and the hidden state for the episode's next step.
    """
    if isinstance(model, (AbstractRecurrentActorCritic, AbstractWrappedActorCritic)):
        distribution, value, hidden = model.advance(observation, action_mask, hidden)
    else:
        distribution, value = model(observation, action_mask)
    return distribution, value.astype(jnp.float32), hidden


def initial_hidden(model: AbstractActorCritic) -> ArrayTree:
    """Returns a model's hidden state at the start of an episode; ``()`` if not recurrent."""
    while isinstance(model, AbstractWrappedActorCritic):
        model = model.network
    return model.initial_hidden() if isinstance(model, AbstractRecurrentActorCritic) else ()


def is_recurrent(model: AbstractActorCritic) -> bool:
    """Whether a model has a hidden state."""
    return bool(jax.tree.leaves(initial_hidden(model)))


class Parts(NamedTuple):
    """A model, split into its fixed functions and its trainable network.

    Attributes:
        features: maps an observation to its features, which a rollout stores.
        unpack: maps features to the network's input.
        network: the trainable network, with wrappers such as normalization.
    """

    features: Callable[[ArrayTree], ArrayTree]
    unpack: Callable[[ArrayTree], ArrayTree]
    network: AbstractActorCritic


def split_features(model: AbstractActorCritic) -> Parts:
    """Splits a model into its fixed feature extractor and the trainable network.

    Without an extractor, the functions ``features`` and ``unpack`` of the result are the identity.
    With nested extractors, ``unpack`` is that of the innermost extractor, and ``features`` does
    everything before that.
    """
    if not isinstance(model, AbstractFeatureActorCritic):
        return Parts(lambda observation: observation, lambda features: features, model)
    if not isinstance(model.network, AbstractFeatureActorCritic):
        return Parts(model.features, model.unpack, model.network)
    inner = split_features(model.network)
    return inner._replace(features=lambda x: inner.features(model.unpack(model.features(x))))


def replace_network(
    model: AbstractActorCritic, network: AbstractActorCritic
) -> AbstractActorCritic:
    """Replaces the trainable network behind a model's feature extractor."""
    return eqx.tree_at(lambda m: split_features(m).network, model, network)


class Memory(eqx.Module):
    """The inputs of a recurrent model in a rollout, besides observations and masks.

    Attributes:
        hidden: the model's hidden state before the rollout's first step.
        ended: True where a step ended its episode; the hidden state is reset after this step.
    """

    hidden: ArrayTree
    ended: Bool[Array, "*envs steps"]


def reset_hidden(
    model: AbstractActorCritic, ended: Bool[Array, "*envs"], hidden: ArrayTree
) -> ArrayTree:
    """Resets hidden states where an episode has ended.

    Args:
        model: the model, which has the initial hidden state.
        ended: True where an episode has ended.
        hidden: arrays whose leading axes are those of ``ended``.
    """

    def one(old: Array, initial: Array) -> Array:
        return jnp.where(ended.reshape(*ended.shape, *[1] * initial.ndim), initial, old)

    return jax.tree.map(one, hidden, initial_hidden(model))


def forward(
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, "rows *steps actions"],
    memory: Memory | None = None,
) -> tuple[AbstractMaskedDistribution, Float[Array, "rows *steps"]]:
    """Evaluates a batch of decisions; a recurrent model runs through all steps of the rollout.

    A row is one observation or, for a recurrent model, one environment's observations.

    Args:
        model: any model.
        observation: what a rollout keeps of the observations, in ``Decision.observation``, with
            axes [rows, …], or [rows, steps, …] for a recurrent model.
        action_mask: the mask of each observation.
        memory: the memory of a recurrent model, with axes [rows, …]; None for other models.
            Gradients flow back through all of an episode's steps in the rollout.

    Returns:
        Distributions and values, with axes [rows, …] or [rows, steps, …].
    """
    _, unpack, network = split_features(model)
    observation = vmap_axes(unpack, action_mask.ndim - 1)(observation)
    if memory is None:
        distribution, value = jax.vmap(network)(observation, action_mask)
        return distribution, value.astype(jnp.float32)

    def step(hidden: ArrayTree, step: tuple[Any, Any, Any]) -> tuple[ArrayTree, ArrayTree]:
        observation, action_mask, ended = step
        distribution, value, hidden = advance(network, observation, action_mask, hidden)
        return reset_hidden(network, ended, hidden), (distribution, value)

    def through_time(*row: Any) -> Any:
        observation, action_mask, memory = row
        return jax.lax.scan(step, memory.hidden, (observation, action_mask, memory.ended))[1]

    return jax.vmap(through_time)(observation, action_mask, memory)


def vmap_axes(function: Callable[..., Any], axes: int) -> Callable[..., Any]:
    """Maps a function over the first ``axes`` axes of its arguments."""
    return function if axes == 0 else jax.vmap(vmap_axes(function, axes - 1))
