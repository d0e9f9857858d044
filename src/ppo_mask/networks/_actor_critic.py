"""Interfaces of networks: plain and recurrent."""

import dataclasses
from abc import abstractmethod
from typing import Any

import equinox as eqx
from jaxtyping import Array, Bool, Float

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._distribution import AbstractMaskedDistribution


class AbstractActorCritic(eqx.Module):
    """A policy and value network.

    Call a network with one observation, or with what a :class:`~ppo_mask.networks.Model`'s reader
    makes of one; ``jax.vmap`` evaluates a batch.

    Example:
        >>> import equinox as eqx, jax, jax.numpy as jnp, ppo_mask as pm
        >>> class Linear(pm.AbstractActorCritic):
        ...     layer: eqx.nn.Linear
        ...     def __init__(self, *, key):
        ...         self.layer = eqx.nn.Linear(4, 3, key=key)
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
    def hyperparameters(self) -> dict[str, Any]:
        """The constructor's arguments without the key: numbers, text, None, networks, and lists,
        tuples and dictionaries of these; by default, the static fields.

        ``type(model)(**model.hyperparameters, key=key)`` makes a model of the same structure and
        shapes. A saved policy stores these arguments as its architecture.
        """
        return static_fields(self)

    @abstractmethod
    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> tuple[AbstractMaskedDistribution, Float[Array, ""]]:
        """Evaluates one observation.

        Args:
            observation: the observation of one environment, or what a reader makes of it.
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


def static_fields(module: eqx.Module) -> dict[str, Any]:
    """Returns a module's static fields by name; for most networks, these are the hyperparameters.

    Args:
        module: a network or reader whose constructor has an argument for each static field.
    """
    fields = dataclasses.fields(module)
    return {x.name: getattr(module, x.name) for x in fields if x.metadata.get("static")}
