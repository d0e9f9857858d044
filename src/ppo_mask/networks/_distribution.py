"""Categorical distributions that are always made with a mask."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, final

import distreqx.distributions as dist
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Int, Key

from ppo_mask.envs.actions import Action, Actions, NumActions, PartMask
from ppo_mask.errors import WrongPart
from ppo_mask.jax_tools import IntScalarLike


class AbstractMaskedDistribution(eqx.Module):
    """A distribution over the actions that a mask allows, and over no others.

    :class:`MaskedCategorical` is for Discrete actions, :class:`MaskedMultiCategorical` for
    MultiDiscrete ones.

    Attributes:
        mask: True where an action is allowed; if MultiDiscrete, the parts' masks, concatenated.
    """

    mask: eqx.AbstractVar[Bool[Array, " actions"]]

    @property
    @abstractmethod
    def choices(self) -> NumActions:
        """The number of actions; if MultiDiscrete, a tuple with the number of each part."""

    def check_choices(self, num_actions: NumActions) -> None:
        """Checks that this distribution has as many actions as an environment.

        Args:
            num_actions: the environment's number of actions.

        Raises:
            WrongPart: the numbers of actions differ.
        """
        if self.choices != num_actions:
            raise WrongPart(
                f"the network has {Actions.of(self.choices)}, and the environment has "
                f"{Actions.of(num_actions)}"
            )

    @property
    @abstractmethod
    def probs(self) -> Float[Array, " actions"]:
        """Probabilities, in the order of the mask; exactly 0 outside the mask."""

    @abstractmethod
    def log_prob(self, action: Any) -> Float[Array, ""]:
        """Log-probability of an action."""

    @abstractmethod
    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats."""

    @abstractmethod
    def kl(self, other: Any) -> Float[Array, ""]:
        """Kullback-Leibler divergence KL(self || other) over the allowed actions, in nats.

        Args:
            other: a distribution with the same mask.
        """

    def given(self, action: Any) -> "AbstractMaskedDistribution":
        """Returns the distribution of each part given the action's earlier parts.

        The distribution itself, unless the logits of a part depend on the choices before it. Then
        ``given(action).entropy()`` is the entropy along the action's path: its mean over sampled
        actions is the entropy, but its gradient is not, since it lacks the term of how the
        parameters change which paths are taken.
        """
        del action
        return self

    def choose(
        self, part_mask: PartMask | None = None, number: Array | None = None
    ) -> tuple[Action, "AbstractMaskedDistribution"]:
        """Chooses an action, and returns it with the distribution that it was chosen from.

        Args:
            part_mask: gives the masks of MultiDiscrete parts that depend on earlier parts.
            number: as for :meth:`invert_cdf`; None for the most likely choice.
        """
        del part_mask
        return self.mode() if number is None else self.invert_cdf(number), self

    @abstractmethod
    def mode(self) -> Action:
        """Returns the most likely allowed action, the first one in a tie."""

    @abstractmethod
    def invert_cdf(self, number: Float[Array, ""] | Float[Array, " parts"]) -> Action:
        """Returns the first allowed action whose CDF exceeds a number.

        Args:
            number: from 0 to below 1, relative to the CDF's last value; if MultiDiscrete, a number
                for each part.
        """

    def sample(self, key: Key[Array, ""]) -> Action:
        """Samples an allowed action by :meth:`invert_cdf`.

        Frequencies match probabilities to within 2⁻²³, the resolution of the random number.
        """
        return self.invert_cdf(Actions.of(self.choices).uniform_numbers(key))


@final
class MaskedCategorical(AbstractMaskedDistribution):
    """A categorical distribution over the allowed actions of one state.

    An action outside the mask has probability exactly 0, is never sampled, and its logit receives a
    gradient of exactly 0 (Huang and Ontañón 2022, arXiv:2006.14171). Everything is computed in
    float32, whatever the dtype of the logits.

    Args:
        logits: log-probabilities of all actions, up to a constant.
        mask: True where an action is allowed.

    Raises:
        ValueError: logits and mask have different lengths, or no action is allowed. The constructor
            checks the mask's values only outside of compiled code, where the values are known. In
            compiled code, :class:`ppo_mask.training.Trainer` and
            :func:`ppo_mask.training.evaluate` check the masks, at no cost per step.

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> distribution = pm.MaskedCategorical(jnp.zeros(4), jnp.array([True, False, True, False]))
        >>> print(distribution.probs)
        [0.5 0.  0.5 0. ]
        >>> int(distribution.sample(jax.random.key(0))) in (0, 2)
        True
    """

    mask: Bool[Array, " actions"]
    _unmasked: dist.Categorical

    def __init__(self, logits: Float[Array, " logits"], mask: Bool[Array, " actions"]):
        _check_length(logits, mask)
        if not isinstance(mask, Tracer) and not np.asarray(mask).any():
            raise ValueError("action mask is all False: at least one action must be allowed")
        logits = logits.astype(jnp.float32)
        # Not -inf: gradients would have differences of infinities, which are NaN.
        logits = jnp.where(mask, logits, jnp.finfo(jnp.float32).min)
        self.mask = mask
        self._unmasked = dist.Categorical(logits=logits)

    @property
    def choices(self) -> int:
        """The number of actions."""
        return self.mask.shape[-1]

    @property
    def probs(self) -> Float[Array, " actions"]:
        """Probabilities; exactly 0 outside the mask."""
        return jnp.where(self.mask, self._unmasked.probs, 0)

    def log_prob(self, action: IntScalarLike) -> Float[Array, ""]:
        """Log-probability; about -3.4e38 for an action outside the mask."""
        return self._unmasked.log_prob(jnp.asarray(action, jnp.int32))

    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats: log n for n equally likely allowed actions."""
        return self._unmasked.entropy()

    def kl(self, other: "MaskedCategorical") -> Float[Array, ""]:
        # Where an action is forbidden, both logarithms are of one size, and the probability is 0.
        ours, theirs = (jax.nn.log_softmax(x._unmasked.logits) for x in (self, other))
        return (self.probs * (ours - theirs)).sum()

    def mode(self) -> Int[Array, ""]:
        """Returns the most likely allowed action, the first one in a tie."""
        # distreqx's mode casts to int8, which is wrong beyond 127 actions.
        logits = jnp.where(self.mask, self._unmasked.logits, -jnp.inf)
        return jnp.argmax(logits).astype(jnp.int32)

    def invert_cdf(self, number: Float[Array, ""]) -> Int[Array, ""]:
        # XLA may sum prefixes in any order, so rounding errors can make the CDF decrease, or change
        # at a forbidden action. Hence the mask here. The top of the CDF counts as above the
        # threshold even if `number * top` rounds up to `top`.
        cdf = jnp.where(self.mask, jnp.cumsum(self.probs), 0)
        top = cdf.max()
        above = (cdf > number * top) | (cdf >= top)
        return jnp.argmax(self.mask & above).astype(jnp.int32)


@final
class MaskedMultiCategorical(AbstractMaskedDistribution):
    """A distribution over the allowed MultiDiscrete actions, part by part.

    Each part is a :class:`MaskedCategorical`, with the same guarantees. As in sb3-contrib for
    Gymnasium's MultiDiscrete, ``logits`` concatenates the parts' logits, and ``mask`` the parts'
    masks. An action has one number for each part.

    Parts are independent, unless the mask of a part depends on the choices before it, or its logits
    do, by ``links``. :meth:`choose` then chooses part after part and returns the action with a
    distribution of independent parts, whose masks and logits are those along the action's path.
    So a learner needs only that mask, and :meth:`given`, to compute what was computed in acting.

    Args:
        logits: log-probabilities of all parts' actions, up to a constant for each part.
        mask: True where an action is allowed.
        num_actions: number of actions of each part.
        links: a vector for each logit, and a vector for each choice. The product of the two is
            added to each logit of a later part than the choice. None for no such dependence.

    Attributes:
        mask: True where an action is allowed.
        num_actions: number of actions of each part.
        links: as above.

    Raises:
        ValueError: a part has no actions, logits or mask have a wrong length, or a part allows no
            action (checked only outside of compiled code).

    Example:
        >>> import jax, jax.numpy as jnp, ppo_mask as pm
        >>> mask = jnp.array([True, True, False, False, True])  # Of 2 actions, and of 3.
        >>> distribution = pm.MaskedMultiCategorical(jnp.zeros(5), mask, (2, 3))
        >>> print(distribution.probs)
        [0.5 0.5 0.  0.  1. ]
        >>> print(distribution.mode())
        [0 2]
        >>> int(distribution.sample(jax.random.key(0))[1])
        2
    """

    mask: Bool[Array, " actions"]
    num_actions: tuple[int, ...] = eqx.field(static=True)
    links: tuple[Float[Array, "actions size"], Float[Array, "actions size"]] | None
    _logits: Float[Array, " actions"]

    def __init__(
        self,
        logits: Float[Array, " logits"],
        mask: Bool[Array, " actions"],
        num_actions: tuple[int, ...],
        links: tuple[Float[Array, "actions size"], Float[Array, "actions size"]] | None = None,
    ):
        _check_length(logits, mask)
        if not num_actions or min(num_actions) < 1:
            raise ValueError(f"each part must have at least 1 action, got {num_actions}")
        actions = Actions.of(num_actions)
        if mask.size != actions.length:
            raise ValueError(
                f"action mask is bool[{mask.size}], not bool[{actions.length}]: there are {actions}"
            )
        if not isinstance(mask, Tracer):
            allowed = np.logical_or.reduceat(np.asarray(mask), actions.starts)
            if not allowed.all():
                raise ValueError(
                    f"action mask is all False in part {allowed.argmin()} of {len(num_actions)} "
                    "(counted from 0): at least one action must be allowed in each part"
                )
        self.mask = mask
        self.num_actions = num_actions
        self.links = jax.tree.map(lambda x: x.astype(jnp.float32), links)
        self._logits = logits.astype(jnp.float32)

    @property
    def choices(self) -> tuple[int, ...]:
        """The number of actions of each part."""
        return self.num_actions

    @property
    def probs(self) -> Float[Array, " actions"]:
        """The parts' probabilities, concatenated; exactly 0 outside the mask."""
        return self._each_part(lambda part: part.probs)

    def log_prob(
        self, action: Int[Array, " parts"] | Int[np.ndarray, " parts"]
    ) -> Float[Array, ""]:
        """Log-probability, summed over the parts; about -3.4e38 for an action outside the mask.

        Raises:
            ValueError: the action has the wrong number of parts.
        """
        if action.shape != (len(self.num_actions),):
            raise ValueError(
                f"action has {action.size} parts; there are {Actions.of(self.num_actions)}"
            )
        if self.links is not None:
            return self.given(action).log_prob(action)
        total = self._each_part(lambda part, number: part.log_prob(number), action).sum()
        # The sum over several forbidden parts would be infinite.
        return jnp.maximum(total, jnp.finfo(jnp.float32).min)

    def entropy(self) -> Float[Array, ""]:
        """Entropy in nats: the sum over the parts."""
        return self._each_part(lambda part: part.entropy()).sum()

    def kl(self, other: "MaskedMultiCategorical") -> Float[Array, ""]:
        """The sum over the parts; see :meth:`AbstractMaskedDistribution.kl`."""

        def of_part(part: MaskedCategorical, logits: Array) -> Array:
            return part.kl(MaskedCategorical(logits, part.mask))

        return self._each_part(of_part, actions=other._logits).sum()

    def given(self, action: Any) -> "MaskedMultiCategorical":
        if self.links is None:
            return self
        return self._along(jnp.asarray(action, jnp.int32), self.mask)

    def choose(
        self, part_mask: PartMask | None = None, number: Array | None = None
    ) -> tuple[Int[Array, " parts"], "MaskedMultiCategorical"]:
        actions = Actions.of(self.num_actions)

        def mask_of(prefix: Array, k: int) -> Array:
            if k == 0 or part_mask is None:  # Part 0 is as the network has seen it.
                return self.mask[actions.slice_of(k)]
            return part_mask(prefix, k)

        def choose_part(k: int, prefix: Array, mask: Array) -> Array:
            part = MaskedCategorical(self._logits_of(k, prefix), mask)
            return part.mode() if number is None else part.invert_cdf(number[k])

        if part_mask is not None and part_mask(jnp.zeros(0, jnp.int32), 0) is None:
            part_mask = None
        if part_mask is None and self.links is None:
            return self.mode() if number is None else self.invert_cdf(number), self
        action, mask = actions.choose_in_turn(mask_of, choose_part)
        return action, self._along(action, mask)

    def mode(self) -> Int[Array, " parts"]:
        """Returns the most likely allowed choice of each part, given those before it."""
        if self.links is not None:
            return self.choose()[0]
        return self._each_part(lambda part: part.mode())

    def invert_cdf(self, number: Float[Array, " parts"]) -> Int[Array, " parts"]:
        if self.links is not None:
            return self.choose(number=number)[0]
        return self._each_part(lambda part, number: part.invert_cdf(number), number)

    def _along(
        self, action: Int[Array, " parts"], mask: Bool[Array, " actions"]
    ) -> "MaskedMultiCategorical":
        """Returns the distribution of each part given the choices before it, under its mask."""
        logits = [self._logits_of(k, action[:k]) for k in range(len(action))]
        return MaskedMultiCategorical(jnp.concatenate(logits), mask, self.num_actions)

    def _logits_of(self, k: int, prefix: Int[Array, " k"]) -> Float[Array, " choices"]:
        actions = Actions.of(self.num_actions)
        logits = self._logits[actions.slice_of(k)]
        if self.links is None or k == 0:
            return logits
        of_logits, of_choices = self.links
        chosen = of_choices[np.array(actions.starts[:k]) + prefix].sum(axis=0)
        return logits + (of_logits[actions.slice_of(k)] * chosen).sum(axis=-1)

    def _each_part(
        self, function: Callable[..., Array], *rows: Any, actions: Array | None = None
    ) -> Array:
        """Calls ``function`` with each part's distribution and joins the results.

        Further arguments are the part's entry of ``rows``, and its actions' entries of ``actions``.

        Raises:
            ValueError: the parts depend on each other.
        """
        if self.links is not None:
            raise ValueError(
                "the logits of a part depend on the choices before it: take the distribution's "
                "given(action), whose parts are independent"
            )

        def call(logits: Array, mask: Array, *elements: Any) -> Array:
            return function(MaskedCategorical(logits, mask), *elements)

        of_actions = [self._logits, self.mask, *([] if actions is None else [actions])]
        of = Actions.of(self.num_actions)
        results = [
            jax.vmap(call)(*(x for _, x in group), *(row[group[0][0]] for row in rows))
            for group in zip(*map(of.split, of_actions), strict=True)
        ]
        return of.unsplit([result.reshape(-1) for result in results])


def masked_distribution(
    logits: Float[Array, " logits"], mask: Bool[Array, " actions"], num_actions: NumActions
) -> AbstractMaskedDistribution:
    """Makes the distribution over an environment's actions, Discrete or MultiDiscrete.

    Args:
        logits: log-probabilities of all actions, up to a constant.
        mask: True where an action is allowed.
        num_actions: a number; if MultiDiscrete, a tuple with the number of each part.

    Raises:
        ValueError: see :class:`MaskedCategorical` and :class:`MaskedMultiCategorical`.

    Example:
        >>> import jax.numpy as jnp, ppo_mask as pm
        >>> mask = jnp.array([False, True, True])
        >>> print(pm.networks.masked_distribution(jnp.zeros(3), mask, 3).mode())
        1
        >>> print(pm.networks.masked_distribution(jnp.zeros(3), mask, (2, 1)).mode())
        [1 0]
    """
    if isinstance(num_actions, tuple):
        return MaskedMultiCategorical(logits, mask, num_actions)
    return MaskedCategorical(logits, mask)


def _check_length(logits: Float[Array, " logits"], mask: Bool[Array, " actions"]) -> None:
    if logits.size != mask.size:
        raise ValueError(f"there are {logits.size} logits, and the mask is of {mask.size} actions")
