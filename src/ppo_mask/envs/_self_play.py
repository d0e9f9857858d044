"""Self-play: an environment in which a copy of the learner plays too."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Real

from ppo_mask.envs._env import AbstractEnv
from ppo_mask.networks import AbstractActorCritic


@final
class SelfPlay(eqx.Module):
    """A curriculum that puts a copy of the learner into the environment, as its own opponent.

    The copy is renewed before every ``every``-th update, the first one included. It is the
    curriculum's memory, and so a part of the training state: it is saved with it, and a resumed run
    continues as if it had not been stopped. A renewal is a change of values; nothing is compiled
    again. An episode under way goes on against the new copy.

    What is evaluated is the environment as it was given, with whatever opponent it has there.

    Attributes:
        where: from the environment to the part of it that the copy takes the place of, as for
            ``equinox.tree_at``.
        every: updates that a copy plays for.

    Raises:
        ValueError: ``every`` is below 1.

    Example:
        >>> import ppo_mask as pm
        >>> from ppo_mask.adapters.pgx import PgxEnv, random_opponent
        >>> env = PgxEnv("tic_tac_toe", random_opponent)
        >>> curriculum = pm.envs.SelfPlay(lambda env: env.opponent, every=5)
        >>> config = pm.PPOConfig(num_envs=4, num_steps=8)
        >>> trainer = pm.Trainer(env, config, curriculum=curriculum)
    """

    where: Callable[[Any], Any] = eqx.field(static=True)
    every: int = eqx.field(static=True, default=10)

    def __check_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every must be at least 1, got {self.every}")

    def renew(
        self, copy: AbstractActorCritic, learner: AbstractActorCritic, updates: Real[Array, ""]
    ) -> AbstractActorCritic:
        """The copy to play against in the next update.

        Args:
            copy: the last one.
            learner: as it is now.
            updates: done so far.
        """
        due = updates.astype(jnp.uint32) % jnp.uint32(self.every) == 0

        def newer(old: Any, new: Any) -> Any:
            return jnp.where(due, new, old) if eqx.is_array(old) else old

        return jax.tree.map(newer, copy, learner)

    def __call__(self, env: AbstractEnv[Any], copy: AbstractActorCritic) -> AbstractEnv[Any]:
        """The environment to train on."""
        return eqx.tree_at(self.where, env, copy, is_leaf=lambda x: x is None)
