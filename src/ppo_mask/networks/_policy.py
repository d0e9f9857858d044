"""A trained policy that acts without a trainer."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias, cast, final, no_type_check

import equinox as eqx
import jax
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Key

from ppo_mask.envs.actions import Action, Actions, PartMask
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree, compile_for
from ppo_mask.jax_tools._trees import plain_dicts
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._distribution import AbstractMaskedDistribution
from ppo_mask.networks._model import Model, is_recurrent
from ppo_mask.networks._reader import IdentityReader

TreeLike: TypeAlias = Any
"""An observation: a tree of arrays, of numbers, or of lists of numbers."""

if TYPE_CHECKING:
    ModelLike: TypeAlias = "Model | AbstractActorCritic | Policy"
    MaskLike: TypeAlias = Array | np.ndarray | Sequence[bool] | Sequence[int]
else:
    ModelLike = MaskLike = Any  # Checked below, with errors that suggest a fix.


@final
class Policy(eqx.Module):
    """A policy that takes the most likely of the allowed actions.

    Acts on one observation; use ``jax.vmap`` for many.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> policy = pm.Policy(model)
        >>> state, timestep = env.reset(jax.random.key(1))
        >>> action = policy(timestep.observation, timestep.action_mask)
        >>> bool(timestep.action_mask[action])
        True

    Attributes:
        model: the model, which also gives probabilities and the value. The constructor also takes a
            network.
    """

    model: Model

    def __init__(self, model: ModelLike) -> None:
        self.model = as_model(model)

    def __check_init__(self) -> None:
        # Equinox makes a new module of a method at each access, which takes as long as an action.
        for name in ("act", "sample"):
            object.__setattr__(self, name, getattr(self, name))

    def __reduce__(self) -> Any:
        return Policy, (self.model,)  # Compiled functions cannot be pickled.

    # Types are checked where an action is traced: in each call, that would take the most time.
    @no_type_check
    def __call__(
        self, observation: TreeLike, action_mask: MaskLike, *, part_mask: PartMask | None = None
    ) -> Action:
        """Chooses an action.

        Args:
            observation: the environment's observation.
            action_mask: True or 1 where an action is allowed, False or 0 elsewhere.
            part_mask: for an environment in which the mask of a part depends on the choices before
                it, ``functools.partial(env.part_mask, state)``, or any function like it.

        Returns:
            The action's number; if MultiDiscrete, one for each part.

        Raises:
            ValueError: no action is allowed (checked only outside of compiled code); or the policy
                is recurrent, so that its action depends on a hidden state.
        """
        return _act(self._programs, observation, action_mask, (), part_mask=part_mask)[0]

    def __repr__(self) -> str:
        return repr(self.model).replace("Model(", "Policy(", 1)

    @no_type_check
    def sample(
        self,
        observation: TreeLike,
        action_mask: MaskLike,
        key: Key[Array, ""],
        *,
        part_mask: PartMask | None = None,
    ) -> Action:
        """Samples an action from the policy's probabilities; otherwise like calling the policy.

        Args:
            observation: the environment's observation.
            action_mask: True or 1 where an action is allowed, False or 0 elsewhere.
            key: the random key of the sample.
            part_mask: as in a call.
        """
        return _act(self._programs, observation, action_mask, (), key, part_mask=part_mask)[0]

    def initial_hidden(self) -> ArrayTree:
        """Returns the hidden state for the first step of an episode; ``()`` if not recurrent."""
        return self.model.initial_hidden()

    @no_type_check
    def act(
        self,
        observation: TreeLike,
        action_mask: MaskLike,
        hidden: ArrayTree,
        *,
        part_mask: PartMask | None = None,
    ) -> tuple[Action, ArrayTree]:
        """Chooses an action, whether or not the network is recurrent.

        Args:
            observation: the environment's observation.
            action_mask: True or 1 where an action is allowed, False or 0 elsewhere.
            hidden: from :meth:`initial_hidden` or from the episode's previous step.
            part_mask: as in a call.

        Returns:
            The action, and the hidden state for the episode's next step.

        Raises:
            ValueError: no action is allowed (checked only outside of compiled code).
        """
        return _act(self._programs, observation, action_mask, hidden, part_mask=part_mask)

    @cached_property
    def _programs(self) -> tuple[Callable[..., Any], Callable[..., Any]]:
        return compile_for(self.model, _choose), compile_for(self.model, _decide)


def as_model(given: Any) -> Model:
    """Returns the given model, or that of a :class:`Policy`; a network becomes one as it is.

    Raises:
        RunError: ``given`` is something else.
    """
    model = given.model if isinstance(given, Policy) else given
    if isinstance(model, Model):
        return model
    if isinstance(model, AbstractActorCritic):
        return Model(IdentityReader(), model)
    name = f"the class {model.__name__}" if isinstance(model, type) else type(model).__name__
    hint = "ppo_mask.network_for(env, key=key) makes one"
    if isinstance(getattr(model, "model", None), Model):
        hint = "use state.model"
    raise RunError(f"model must be a Model or an AbstractActorCritic, got {name}; {hint}")


@no_type_check
def _act(
    programs: tuple[Callable[..., Any], Callable[..., Any]],
    observation: TreeLike,
    action_mask: MaskLike,
    hidden: ArrayTree,
    *key: Key[Array, ""],
    part_mask: PartMask | None = None,
) -> tuple[Action, ArrayTree]:
    choose, decide = programs
    observation, mask = _as_observation(observation), _as_mask(action_mask)
    if part_mask is not None:  # Any function, so only the network is compiled.
        distribution, hidden = decide(observation, mask, hidden)
        numbers = [Actions.of(distribution.choices).uniform_numbers(k) for k in key]

        def mask_of(prefix: Any, k: int) -> Any:
            given = part_mask(prefix, k)
            return None if given is None else jax.numpy.asarray(_as_mask(given))

        return distribution.choose(mask_of, *numbers)[0], hidden
    action, hidden, is_allowed = choose(observation, mask, hidden, *key)
    if not isinstance(is_allowed, Tracer) and not is_allowed:
        raise ValueError(
            "the action mask allows no action; it must allow one, in each part if MultiDiscrete"
        )
    return action, hidden


@no_type_check
def _as_mask(given: Any) -> Bool[Array, " actions"] | Bool[np.ndarray, " actions"]:
    """Converts a mask to booleans; Gymnasium's masks are ones and zeros."""
    mask = given if isinstance(given, jax.Array) else np.asarray(given)
    if mask.ndim > 1:
        raise ValueError(
            f"action_mask has shape {list(mask.shape)}: a policy acts on one observation; "
            "jax.vmap(policy) takes many"
        )
    if mask.dtype.kind in "iu":
        # A list of the allowed actions' numbers, for example, is not a mask.
        if not isinstance(mask, Tracer) and not ((mask == 0) | (mask == 1)).all():
            raise ValueError(f"action_mask must be of True and False or of 1 and 0, got {mask}")
        mask = mask != 0
    if mask.dtype != bool or mask.ndim == 0:
        raise ValueError(f"action_mask is {mask.dtype}{list(mask.shape)}, not bool[actions]")
    return mask


@no_type_check
def _as_observation(given: Any) -> ArrayTree:
    """Converts an observation to the form used in training; lists of numbers become arrays."""
    return jax.tree.map(_as_array, plain_dicts(given), is_leaf=_is_list_of_numbers)


@no_type_check
def _as_array(leaf: Any) -> Any:
    array = leaf if isinstance(leaf, jax.Array) else np.asarray(leaf)
    if array.dtype.kind in "OSU":
        raise ValueError(f"the observation has a {type(leaf).__name__}, which is not an array")
    return array


@no_type_check
def _is_list_of_numbers(node: Any) -> bool:
    if isinstance(node, list):
        return all(map(_is_list_of_numbers, cast(list[Any], node)))
    return isinstance(node, int | float)


def _decide(
    model: Model, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
) -> tuple[AbstractMaskedDistribution, ArrayTree]:
    if is_recurrent(model) and not jax.tree.leaves(hidden):
        raise ValueError(
            "this policy is recurrent: call act, which carries its hidden state, or sample from "
            "what model.advance returns"
        )
    distribution, _, hidden = model.advance(observation, action_mask, hidden)
    return distribution, hidden


def _choose(
    model: Model,
    observation: ArrayTree,
    action_mask: Bool[Array, " actions"],
    hidden: ArrayTree,
    *key: Any,  # A random key to sample by; none for the most likely action.
) -> tuple[Action, ArrayTree, Bool[Array, ""]]:
    distribution, hidden = _decide(model, observation, action_mask, hidden)
    action = distribution.sample(*key) if key else distribution.mode()
    return action, hidden, Actions.of(distribution.choices).any_allowed(action_mask)
