"""A trained policy by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int

from ppo_mask._types import ArrayTree
from ppo_mask.checkpoint import read_description, restore
from ppo_mask.errors import RunError
from ppo_mask.networks import AbstractActorCritic, MLPActorCritic
from ppo_mask.run_folder import RunFolder


@final
class Policy(eqx.Module):
    """The most likely of the allowed actions, for one observation; ``vmap`` it for many.

    Attributes:
        model: the network, for its probabilities and its value.
    """

    model: AbstractActorCritic

    @eqx.filter_jit
    def __call__(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"]
    ) -> Int[Array, ""]:
        """The action to take."""
        distribution, _ = self.model(observation, action_mask)
        return distribution.mode()


def load_policy(
    path: str | Path, networks: Sequence[type[AbstractActorCritic]] = (MLPActorCritic,)
) -> Policy:
    """The policy of a run's newest checkpoint, or of the checkpoint given.

    Args:
        path: a run's folder or a checkpoint in it.
        networks: classes that the policy may be of. A checkpoint holds its network's name and
            sizes; it brings no code.

    Raises:
        RunError: there is no readable checkpoint, or its network is none of ``networks``.
    """
    path = Path(path)
    if RunFolder(path).config.is_file():
        steps = RunFolder(path).checkpoints.steps()
        if not steps:
            raise RunError(f"run {path} has no complete checkpoint")
        path = RunFolder(path).checkpoints.path(steps[-1])
    architecture = read_description(path)["architecture"]
    known = {network.__name__: network for network in networks}
    name = architecture["network"]
    if name not in known:
        raise RunError(
            f"checkpoint {path} is of the network {name}; give its class to load_policy, which "
            f"knows {', '.join(known)}"
        )
    like = eqx.filter_eval_shape(
        known[name], **architecture["hyperparameters"], key=jax.random.key(0)
    )
    return Policy(restore(path, like, prefix="learner.model."))


def architecture_of(model: AbstractActorCritic) -> dict[str, object]:
    """What :func:`load_policy` needs to know of a network, as JSON can hold it."""
    return {"network": type(model).__name__, "hyperparameters": model.hyperparameters}
