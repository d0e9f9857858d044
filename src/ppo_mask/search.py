"""Search before acting: a policy thinks ahead in the real environment.

:class:`Search` plays simulations of the environment from a state, guided by a model, and returns a
better policy for that state. It needs the extra ``mctx``.
"""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from ppo_mask.acting._reward_scaler import scaled_rewards
from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._env import has_method, imagines
from ppo_mask.envs._host import host_env_in
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import RunError, check_at_least
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._trees import changes, strong_types
from ppo_mask.networks import (
    AbstractMaskedDistribution,
    MaskedCategorical,
    Model,
    ModelLike,
    as_model,
)

__all__ = ["Search"]


@final
class Search(eqx.Module):
    """Improves a policy in one state by Gumbel MuZero's search (Danihelka et al. 2022, ICLR).

    Simulations step the real environment, with fresh keys; the model gives each action's prior
    probability and each state's value. Actions that a mask forbids are never tried. A terminal
    state is worth 0; one in which an episode was cut off, the model's value of its observation.

    What the player cannot see is drawn by :meth:`~ppo_mask.envs.AbstractEnv.imagine`. By default
    that draws nothing: the search then sees all.

    Call a search with one state; ``jax.vmap`` searches many at once.

    Attributes:
        num_simulations: simulations in each world.
        gamma: the discount per step that the model was trained with.
        num_worlds: how often what is hidden, and chance, are drawn for a state. Each world is
            searched alone, and the improved policies are averaged: in one world alone, a search
            knows what it should only guess.
        reward_scale: what the model's training divided rewards by, before it clipped them to ±10,
            if it normalized them (:class:`ppo_mask.acting.RewardScaler`); None if it did not.
        env: the environment inside the search; None for that of the state. It has the same states,
            and rewards as in training if those differed. A :class:`ppo_mask.games.Seat` here says
            who the search takes the opponent for; without, it knows the opponent.

    Raises:
        ValueError: a number is out of range.
        RunError: mctx is not installed.

    Example:
        >>> import jax, ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks(length=3)
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> state, timestep = env.reset(jax.random.key(1))
        >>> search = pm.Search(num_simulations=8, gamma=0.99)
        >>> seen = timestep.observation, timestep.action_mask
        >>> distribution, value, _ = search(model, env, jax.random.key(2), state, *seen)
        >>> bool(timestep.action_mask[distribution.mode()])
        True
    """

    num_simulations: int = eqx.field(static=True)
    gamma: float | Float[Array, ""]
    num_worlds: int = eqx.field(static=True, default=1)
    reward_scale: float | Float[Array, ""] | None = None
    env: AbstractEnv[Any] | None = None

    def __check_init__(self) -> None:
        check_at_least(1, num_simulations=self.num_simulations, num_worlds=self.num_worlds)
        _mctx()

    def __call__(
        self,
        model: ModelLike,
        env: AbstractEnv[Any],
        key: Key[Array, ""],
        state: ArrayTree,
        observation: ArrayTree,
        action_mask: Bool[Array, " actions"],
        hidden: ArrayTree | None = None,
    ) -> tuple[MaskedCategorical, Float[Array, ""], ArrayTree]:
        """Searches from one state; compile the caller.

        Args:
            model: the model; or a network, or a policy.
            env: the environment of the state.
            key: the random key of the search: of what is hidden, and of chance.
            state: a state of an episode that has not ended.
            observation: the state's observation.
            action_mask: the state's mask.
            hidden: a recurrent model's hidden state before this step; None for the first step of an
                episode.

        Returns:
            What :meth:`ppo_mask.networks.Model.advance` returns, with the improved policy and the
            value after the search.

        Raises:
            RunError: the environment is not one that can be searched.
        """
        mctx, model, inside = _mctx(), as_model(model), self._inside(env, state)
        hidden = model.initial_hidden() if hidden is None else hidden
        distribution, value, hidden = model.advance(observation, action_mask, hidden)
        distribution.check_choices(env.num_actions)
        search_key, world_key = jax.random.split(key)

        def step(key: Any, action: Any, node: Any) -> Any:
            *before, was_over = node
            state, timestep = inside.step(key, before[0], action)
            seen = timestep.observation, timestep.action_mask
            distribution, value, hidden = model.advance(*seen, before[1])
            reward = timestep.reward.astype(jnp.float32)
            if self.reward_scale is not None:
                reward = scaled_rewards(reward, self.reward_scale)
            # The tree ends where an episode is cut off: the reward has the value of what follows.
            is_cut = timestep.truncated & ~timestep.terminated
            reward = reward + jnp.where(is_cut, self.gamma * value, 0)
            over = was_over | timestep.terminated | timestep.truncated
            # A step from an ended state may do anything, so the last state before it is kept.
            after = [strong_types(state), hidden]
            after = jax.tree.map(lambda new, old: jnp.where(over, old, new), after, before)
            return mctx.RecurrentFnOutput(
                reward=jnp.where(was_over, 0, reward),
                discount=jnp.where(over, 0, self.gamma),
                prior_logits=jnp.log(distribution.probs),
                value=jnp.where(over, 0, value),
            ), (*after, over)

        def expand(_: Any, key: Any, actions: Any, nodes: Any) -> Any:
            return jax.vmap(step)(jax.random.split(key, self.num_worlds), actions, nodes)

        def begin(key: Any) -> Any:
            drawn = env.imagine(key, state)
            first = strong_types(state if drawn is None else drawn.state)
            node = first, hidden, jnp.array(False)
            logits = jnp.log(distribution.probs)
            root = mctx.RootFnOutput(prior_logits=logits, value=value, embedding=node)
            return root, ~action_mask

        root, forbidden = jax.vmap(begin)(jax.random.split(world_key, self.num_worlds))
        # Without Gumbel noise, which is for training.
        found = mctx.gumbel_muzero_policy(
            None, search_key, root, expand, self.num_simulations, forbidden, gumbel_scale=0.0
        )
        improved = jnp.log(found.action_weights.mean(axis=0))
        value = found.search_tree.summary().value.mean()
        return MaskedCategorical(improved, action_mask), value, hidden

    def describe(self, env: AbstractEnv[Any]) -> str:
        """Says how much is searched in an environment, and what the search knows there."""
        worlds = "" if self.num_worlds == 1 else f" × {self.num_worlds}"
        inside, words = self.env or env, [f"search {self.num_simulations}{worlds}"]
        words += [] if imagines(env) else ["sees all"]
        opponent = getattr(inside, "opponent", None)
        if opponent is not None and opponent is getattr(env, "opponent", None):
            words.append("knows its opponent")
        return ", ".join(words)

    def _inside(self, env: AbstractEnv[Any], state: ArrayTree) -> AbstractEnv[Any]:
        """Returns the environment inside the search, if it can be searched."""
        if Actions.of(env.num_actions).has_parts:
            raise RunError(
                "a search is for actions of one part; those of this environment have more"
            )
        if host_env_in(env) is not None:
            raise RunError("a search is for environments in JAX; this one lives in Python")
        has_method(env, "imagine")  # An error, if a wrapper forgets to pass it on.
        inside = self.env or env
        own = jax.eval_shape(inside.reset, jax.random.key(0))[0]
        for place, here, there in sorted(changes(strong_types(state), own)):
            raise RunError(f"state{place} is {here}, but {there} in the environment of the search")
        return inside


def advance(
    search: Search | None, model: Model, env: AbstractEnv[Any], key: Any, *seen: Any
) -> tuple[AbstractMaskedDistribution, Float[Array, ""], ArrayTree]:
    """Evaluates one step of an episode: by the search, or without one by the model alone.

    Args:
        search: the search; None for none.
        model: the model.
        env: the environment.
        key: for the search; not used without one.
        seen: a state, its observation and mask, and the model's hidden state.
    """
    return model.advance(*seen[1:]) if search is None else search(model, env, key, *seen)


def _mctx() -> Any:
    try:
        import mctx
    except ImportError as error:
        install = "install it with pip install 'ppo-mask[mctx]'"
        raise RunError(f"search needs mctx; {install}") from error
    return mctx
