"""A trained policy by itself, which acts."""

from typing import TYPE_CHECKING, Any, TypeAlias, final

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, ArrayLike, Bool, Key, PyTree

from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks._actor_critic import (
    AbstractActorCritic,
    advance,
    count_parameters,
    initial_hidden,
    is_recurrent,
)
from ppo_mask.networks.choices import Action, allows_action

if TYPE_CHECKING:
    TreeLike: TypeAlias = Any
else:
    TreeLike = PyTree[ArrayLike]
MaskLike: TypeAlias = Bool[Array, " actions"] | Bool[np.ndarray, " actions"]


@final
class Policy(eqx.Module):
    """A policy that takes the most likely of the allowed actions.

    It acts on one observation; ``jax.vmap`` it for many.

    Example:
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> model = pm.MLPActorCritic.for_env(env, key=jax.random.key(0))
        >>> policy = pm.Policy(model)
        >>> state, timestep = env.reset(jax.random.key(1))
        >>> action = policy(timestep.observation, timestep.action_mask)
        >>> bool(timestep.action_mask[action])
        True

    Attributes:
        model: the network, for its probabilities and its value.
    """

    model: AbstractActorCritic

    def __call__(self, observation: TreeLike, action_mask: MaskLike) -> Action:
        """Chooses an action.

        Args:
            observation: what the environment shows.
            action_mask: which actions are allowed.

        Returns:
            The action's number; of several choices at once, one for each.

        Raises:
            ValueError: no action is allowed (where the mask's values are known); or the policy is
                recurrent, so that its action depends on a hidden state.
        """
        if is_recurrent(self.model):
            raise ValueError("this policy is recurrent: call act, which carries its hidden state")
        return self.act(observation, action_mask, ())[0]

    def __repr__(self) -> str:
        return f"Policy({type(self.model).__name__}, {count_parameters(self.model):,} parameters)"

    def sample(self, observation: TreeLike, action_mask: MaskLike, key: Key[Array, ""]) -> Action:
        """Draws an action from the policy's probabilities.

        Args:
            observation: what the environment shows.
            action_mask: which actions are allowed.
            key: draws it.

        Returns:
            The action's number; of several choices at once, one for each.

        Raises:
            ValueError: no action is allowed (where the mask's values are known); or the policy is
                recurrent, so that its action depends on a hidden state.
        """
        if is_recurrent(self.model):
            raise ValueError("this policy is recurrent: draw from what model.advance returns")
        return _act(self.model, observation, action_mask, (), key)[0]

    def initial_hidden(self) -> ArrayTree:
        """The hidden state for the first step of an episode; ``()`` if not recurrent."""
        return initial_hidden(self.model)

    def act(
        self, observation: TreeLike, action_mask: MaskLike, hidden: ArrayTree
    ) -> tuple[Action, ArrayTree]:
        """Chooses an action, with a network that is recurrent or not.

        Args:
            observation: what the environment shows.
            action_mask: which actions are allowed.
            hidden: from :meth:`initial_hidden` or from the episode's previous step.

        Returns:
            The action's number, or several, and the hidden state for the episode's next step.

        Raises:
            ValueError: no action is allowed. Only where the mask's values are known, that is
                outside of compiled code.
        """
        return _act(self.model, observation, action_mask, hidden, None)


def _act(
    model: AbstractActorCritic,
    observation: TreeLike,
    action_mask: MaskLike,
    hidden: ArrayTree,
    key: Key[Array, ""] | None,
) -> tuple[Action, ArrayTree]:
    action, hidden, is_allowed = _choose(model, observation, jnp.asarray(action_mask), hidden, key)
    if not isinstance(is_allowed, Tracer) and not is_allowed:
        raise ValueError("the action mask allows no action; there must be one, of each choice")
    return action, hidden


@eqx.filter_jit
def _choose(
    model: AbstractActorCritic,
    observation: ArrayTree,
    action_mask: Bool[Array, " actions"],
    hidden: ArrayTree,
    key: Key[Array, ""] | None,
) -> tuple[Action, ArrayTree, Bool[Array, ""]]:
    distribution, _, hidden = advance(model, observation, action_mask, hidden)
    action = distribution.mode() if key is None else distribution.sample(key)
    return action, hidden, allows_action(action_mask, distribution.choices)
