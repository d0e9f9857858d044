"""A trained policy by itself."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, final

import equinox as eqx
import jax
from jaxtyping import Array, Bool, Int

from ppo_mask.checkpoints._find import local_path
from ppo_mask.checkpoints._run_folder import RunFolder
from ppo_mask.checkpoints._store import read_description, restore
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.networks import (
    AbstractActorCritic,
    BFloat16ActorCritic,
    GRUActorCritic,
    MLPActorCritic,
    NormalizedActorCritic,
    advance,
    initial_hidden,
    is_recurrent,
)

# The library's own.
_NETWORKS: tuple[type[AbstractActorCritic], ...] = (
    MLPActorCritic,
    GRUActorCritic,
    NormalizedActorCritic,
    BFloat16ActorCritic,
)


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
        """The action to take.

        Raises:
            ValueError: the policy is a recurrent one: what it does depends on what it remembers.
        """
        if is_recurrent(self.model):
            raise ValueError("this policy is recurrent: call act, which carries its hidden state")
        return self.act(observation, action_mask, ())[0]

    def initial_hidden(self) -> ArrayTree:
        """What :meth:`act` is given at the first step of an episode; ``()`` if not recurrent."""
        return initial_hidden(self.model)

    @eqx.filter_jit
    def act(
        self, observation: ArrayTree, action_mask: Bool[Array, " actions"], hidden: ArrayTree
    ) -> tuple[Int[Array, ""], ArrayTree]:
        """The action to take, and the hidden state for the episode's next step."""
        distribution, _, hidden = advance(self.model, observation, action_mask, hidden)
        return distribution.mode(), hidden


def load_policy(path: str | Path, networks: Sequence[type[AbstractActorCritic]] = ()) -> Policy:
    """The policy of a run's newest checkpoint, or of the checkpoint given.

    Args:
        path: a run's folder or a checkpoint in it; or the URL of one in a bucket.
        networks: classes, beside the library's own, that the policy may be made of. A checkpoint
            holds its networks' names and sizes; it brings no code.

    Raises:
        RunError: there is no readable checkpoint, or it holds a network that is not known.
    """
    path = local_path(str(path))
    if RunFolder(path).config.is_file():
        newest = RunFolder(path).checkpoints.newest()
        if newest is None:
            raise RunError(f"run {path} has no complete checkpoint")
        path = RunFolder(path).checkpoints.path(newest)
    known: dict[str, Any] = {network.__name__: network for network in (*_NETWORKS, *networks)}

    def build(architecture: dict[str, Any]) -> AbstractActorCritic:
        name = architecture["network"]
        if name not in known:
            raise RunError(
                f"checkpoint {path} is of the network {name}; give its class to load_policy, which "
                f"knows {', '.join(known)}"
            )
        hyperparameters = {
            name: build(value) if _is_architecture(value) else value
            for name, value in architecture["hyperparameters"].items()
        }
        return known[name](**hyperparameters, key=jax.random.key(0))  # Only shapes come of it.

    like = eqx.filter_eval_shape(build, read_description(path)["architecture"])
    return Policy(restore(path, like, prefix="learner.model."))


def architecture_of(model: AbstractActorCritic) -> dict[str, object]:
    """What :func:`load_policy` needs to know of a network, as JSON can hold it."""
    hyperparameters = {
        name: architecture_of(value) if isinstance(value, AbstractActorCritic) else value
        for name, value in model.hyperparameters.items()
    }
    return {"network": type(model).__name__, "hyperparameters": hyperparameters}


def _is_architecture(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {"network", "hyperparameters"}
