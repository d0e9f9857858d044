"""What PPO trains: policies with a value function, with a hidden state or without."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._distribution import MaskedCategorical


class AbstractActorCritic(eqx.Module):
    """A policy and a value function; what PPO trains.

    Works on one observation; whoever calls it vmaps. Its array leaves are what is trained.
    """

    @property
    @abstractmethod
    def hyperparameters(self) -> dict[str, Any]:
        """The constructor's arguments without the key, as plain values or networks.

        ``type(model)(**model.hyperparameters, key=key)`` has the same structure and shapes, so that
        a saved policy can carry its architecture.
        """

    @abstractmethod
    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """The distribution over the allowed actions, and the state's value."""


class AbstractRecurrentActorCritic(AbstractActorCritic):
    """A policy that remembers: a hidden state goes from each step of an episode to the next.

    Whoever plays it keeps the hidden state (:func:`advance`) and begins every episode with
    :meth:`initial_hidden`. PPO learns from whole rollouts of an environment, through time.
    """

    @abstractmethod
    def initial_hidden(self) -> ArrayTree:
        """The hidden state at the start of an episode: arrays of floats."""

    @abstractmethod
    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[MaskedCategorical, Float[Array, ""], ArrayTree]:
        """The distribution, the value, and the hidden state for the next step."""

    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """What is done at the first step of an episode, where there is nothing to remember."""
        return self.advance(observation, action_mask, self.initial_hidden())[:2]


class AbstractWrappedActorCritic(AbstractRecurrentActorCritic):
    """Something around a network. It has the network's hidden state: ``()`` if that has none.

    Attributes:
        network: what is wrapped.
    """

    network: eqx.AbstractVar[AbstractActorCritic]

    def initial_hidden(self) -> ArrayTree:
        """See :class:`AbstractRecurrentActorCritic`."""
        return initial_hidden(self.network)


class AbstractFeatureActorCritic(AbstractWrappedActorCritic):
    """A network that is shown features of an observation, computed by rules that do not learn.

    What the library puts around a network, such as normalization, goes between the two: the rules
    read the observation as the environment wrote it.
    """

    @abstractmethod
    def features(self, observation: ArrayTree) -> ArrayTree:
        """What a rollout keeps of one observation, as small as can be. Holds no parameters."""

    @abstractmethod
    def unpacked(self, features: ArrayTree) -> ArrayTree:
        """What the network sees of one observation's features: made of them for each use."""

    def advance(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[MaskedCategorical, Float[Array, ""], ArrayTree]:
        """See :class:`AbstractRecurrentActorCritic`."""
        seen = self.unpacked(self.features(observation))
        return advance(self.network, seen, action_mask, hidden)


def advance(
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, " actions"],
    hidden: ArrayTree,
) -> tuple[MaskedCategorical, Float[Array, ""], ArrayTree]:
    """One step of any model, recurrent or not.

    Args:
        model: any.
        observation: of one environment, as is the mask.
        action_mask: what is allowed.
        hidden: :func:`initial_hidden` in an episode's first step, then what the last step gave.

    Returns:
        The distribution, the value, and the hidden state for the episode's next step.
    """
    if isinstance(model, AbstractRecurrentActorCritic):
        return model.advance(observation, action_mask, hidden)
    return *model(observation, action_mask), hidden


def initial_hidden(model: AbstractActorCritic) -> ArrayTree:
    """The hidden state in which a model begins an episode; ``()`` if it has none."""
    return model.initial_hidden() if isinstance(model, AbstractRecurrentActorCritic) else ()


def is_recurrent(model: AbstractActorCritic) -> bool:
    """Whether a model has a hidden state."""
    return bool(jax.tree.leaves(initial_hidden(model)))


class Parts(NamedTuple):
    """A model taken apart.

    Attributes:
        features: from an observation to what a rollout keeps of it.
        unpacked: from that to what the network sees.
        network: what learns.
    """

    features: Callable[[ArrayTree], ArrayTree]
    unpacked: Callable[[ArrayTree], ArrayTree]
    network: AbstractActorCritic


def split_features(model: AbstractActorCritic) -> Parts:
    """A model's rules that do not learn, and the network that sees what they make of what is seen.

    A rollout is learned from several times, and its features are the same each time.
    """
    if not isinstance(model, AbstractFeatureActorCritic):
        return Parts(lambda observation: observation, lambda features: features, model)
    if not isinstance(model.network, AbstractFeatureActorCritic):
        return Parts(model.features, model.unpacked, model.network)
    inner = split_features(model.network)
    return inner._replace(features=lambda x: inner.features(model.unpacked(model.features(x))))


class Memory(eqx.Module):
    """What a recurrent model's outputs in a rollout depend on, beside what is seen.

    Attributes:
        hidden: its hidden state before the rollout's first step.
        ended: the step was its episode's last: what comes next is not to remember it.
    """

    hidden: ArrayTree
    ended: Bool[Array, "*envs steps"]


def reset_hidden(
    model: AbstractActorCritic, ended: Bool[Array, "*envs"], hidden: ArrayTree
) -> ArrayTree:
    """The hidden states, those of an episode's start where an episode has ended."""

    def one(old: Array, initial: Array) -> Array:
        return jnp.where(ended.reshape(*ended.shape, *[1] * initial.ndim), initial, old)

    return jax.tree.map(one, hidden, initial_hidden(model))


def forward(
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, "rows *steps actions"],
    memory: Memory | None,
) -> tuple[MaskedCategorical, Float[Array, "rows *steps"]]:
    """A batch of distributions and values, as they were when the model acted.

    Args:
        model: any.
        observation: with axes [rows, …]; with a memory, [rows, steps, …].
        action_mask: likewise.
        memory: of a recurrent model, with axes [rows, …]. Gradients flow back through all steps of
            an episode that the rollout has.
    """
    if memory is None:
        return jax.vmap(model)(observation, action_mask)

    def step(hidden: ArrayTree, step: tuple[Any, Any, Any]) -> tuple[ArrayTree, ArrayTree]:
        observation, action_mask, ended = step
        distribution, value, hidden = advance(model, observation, action_mask, hidden)
        return reset_hidden(model, ended, hidden), (distribution, value)

    def through_time(*row: Any) -> Any:
        observation, action_mask, memory = row
        return jax.lax.scan(step, memory.hidden, (observation, action_mask, memory.ended))[1]

    return jax.vmap(through_time)(observation, action_mask, memory)
