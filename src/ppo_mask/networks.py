"""Policies with a value function: the abstract one, and an MLP."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, NamedTuple, final

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Float, Key

from ppo_mask._types import ArrayTree
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.layers import activated, affine, check_sizes, linear


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

    What the library puts around a network, such as normalisation, goes between the two: the rules
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


def features_apart(model: AbstractActorCritic) -> Parts:
    """A model's rules that do not learn, and the network that sees what they make of what is seen.

    A rollout is learned from several times, and its features are the same each time.
    """
    if not isinstance(model, AbstractFeatureActorCritic):
        return Parts(lambda observation: observation, lambda features: features, model)
    if not isinstance(model.network, AbstractFeatureActorCritic):
        return Parts(model.features, model.unpacked, model.network)
    inner = features_apart(model.network)
    return inner._replace(features=lambda x: inner.features(model.unpacked(model.features(x))))


@final
class MLPActorCritic(AbstractActorCritic):
    """Two tanh MLPs, one for the policy and one for the value, on a flat observation.

    They share nothing: with a shared trunk the value's gradients, which are large early in
    training, disturb the policy's features (Andrychowicz et al. 2021, arXiv:2006.05990, found
    separate networks better). Weights start orthogonal with gain √2, 0.01 for the policy's head so
    that it starts uniform, 1 for the value's; biases start at 0.

    Adam moves a weight by about the learning rate a step, but by much less where the gradient is
    under its epsilon of 1e-5. On long and sparse observations that is where the policy's hidden
    layers begin: their gradient comes through a head that starts at 0.01. ``layer_norm`` and
    ``policy_gain`` make it larger by making what the layers see larger.

    Attributes:
        layer_norm: hidden layers are normalised to mean 0 and variance 1 before their tanh
            (Ba et al. 2016, arXiv:1607.06450), without weights of its own. Not for observations
            of one or two numbers, whose size it would hide.
        policy_gain: what the last hidden layer is multiplied by before the policy's head.
    """

    actor: tuple[eqx.nn.Linear, ...]
    critic: tuple[eqx.nn.Linear, ...]
    observation_size: int = eqx.field(static=True)
    num_actions: int = eqx.field(static=True)
    hidden_dim: int = eqx.field(static=True)
    num_layers: int = eqx.field(static=True)
    layer_norm: bool = eqx.field(static=True)
    policy_gain: float = eqx.field(static=True)

    def __init__(
        self,
        observation_size: int,
        num_actions: int,
        hidden_dim: int = 256,
        num_layers: int = 2,
        layer_norm: bool = False,
        policy_gain: float = 1.0,
        *,
        key: Key[Array, ""],
    ):
        check_sizes(
            observation_size=observation_size,
            num_actions=num_actions,
            hidden_dim=hidden_dim,
            num_layers=num_layers,
        )
        actor_key, critic_key = jax.random.split(key)
        hidden = (observation_size, *[hidden_dim] * num_layers)
        self.actor = _mlp((*hidden, num_actions), 0.01, actor_key)
        self.critic = _mlp((*hidden, 1), 1.0, critic_key)
        self.observation_size = observation_size
        self.num_actions = num_actions
        self.hidden_dim = hidden_dim
        self.num_layers = num_layers
        self.layer_norm = layer_norm
        self.policy_gain = policy_gain

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """See :class:`AbstractActorCritic`."""
        return {
            "observation_size": self.observation_size,
            "num_actions": self.num_actions,
            "hidden_dim": self.hidden_dim,
            "num_layers": self.num_layers,
            "layer_norm": self.layer_norm,
            "policy_gain": self.policy_gain,
        }

    def __call__(
        self, observation: Float[Array, " features"], action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """See :class:`AbstractActorCritic`."""
        logits = self._apply(self.actor, observation, self.policy_gain)
        value = self._apply(self.critic, observation, 1.0)
        return MaskedCategorical(logits, action_mask), value[0]

    def _apply(
        self, layers: tuple[eqx.nn.Linear, ...], x: Float[Array, " n_in"], gain: float
    ) -> Float[Array, " n_out"]:
        for layer in layers[:-1]:
            x = activated(layer, x, self.layer_norm)
        return affine(layers[-1], x, gain)


def _mlp(
    sizes: tuple[int, ...], head_gain: float, key: Key[Array, ""]
) -> tuple[eqx.nn.Linear, ...]:
    keys = jax.random.split(key, len(sizes) - 1)
    gains = [2**0.5] * (len(sizes) - 2) + [head_gain]
    return tuple(
        linear(n_in, n_out, gain, key)
        for n_in, n_out, gain, key in zip(sizes[:-1], sizes[1:], gains, keys, strict=True)
    )
