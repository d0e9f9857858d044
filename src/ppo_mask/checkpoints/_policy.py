"""Saves and loads policies."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import equinox as eqx

from ppo_mask.checkpoints._architecture import (
    UnknownNetwork,
    architecture_of,
    build,
    is_architecture_of,
)
from ppo_mask.checkpoints._checkpoint import DESCRIPTION, Checkpoint
from ppo_mask.checkpoints._run_dir import RunDir
from ppo_mask.checkpoints._runs import expand_user, find_run, is_url, known_path
from ppo_mask.errors import RunError, first_line
from ppo_mask.networks import (
    ArrayReader,
    ConvActorCritic,
    GRUActorCritic,
    IdentityReader,
    MLPActorCritic,
    Model,
    ModelLike,
    Policy,
    SetActorCritic,
    SetReader,
    as_model,
)

_READERS = IdentityReader, ArrayReader, SetReader
_KNOWN = (Model, *_READERS, MLPActorCritic, ConvActorCritic, GRUActorCritic, SetActorCritic)


def save_policy(model: ModelLike, path: str | Path) -> None:
    """Saves a network as a policy for :func:`load_policy`.

    Args:
        model: the network, such as ``state.model`` after training, or a :class:`Policy`.
        path: a new folder. The folder will hold the network's arrays, class name and
            hyperparameters.

    Raises:
        RunError: the path exists or is a URL, or the model is not a network.
        ValueError: the network could not be loaded again; see :func:`architecture_of`.

    Example:
        >>> import tempfile
        >>> import jax
        >>> import ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> model = pm.network_for(env, key=jax.random.key(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pm.save_policy(model, f"{folder}/policy")
        ...     policy = pm.load_policy(f"{folder}/policy")
        >>> policy
        Policy(MLPActorCritic, 141,089 parameters)
    """
    if is_url(str(path)):
        raise RunError(f"a policy is saved to a local folder, not to {path}")
    path = Path(expand_user(str(path))).absolute()
    if path.exists():
        raise RunError(f"there is something at {path} already; a policy needs a new folder")
    model = as_model(model)
    architecture = architecture_of(model)
    # Nested, so that the arrays have the same names as in a run's checkpoint.
    Checkpoint.write(path, {"model": model}, {"architecture": architecture})


def is_saved_policy(place: str) -> bool:
    """Whether the place is a folder from :func:`save_policy`, not a run's checkpoint."""
    path = Path(expand_user(place))
    return (path / DESCRIPTION).is_file() and "update" not in Checkpoint.read(path).about


def load_policy(path: str | Path | Checkpoint, networks: Sequence[type[Any]] = ()) -> Policy:
    """Loads a policy from a run, a checkpoint, or a folder that :func:`save_policy` wrote.

    Args:
        path: the folder or URL of a run (whose newest checkpoint is loaded), of a checkpoint, or of
            a saved policy; or a :class:`Checkpoint`.
        networks: custom classes of networks and readers that the policy may use. A checkpoint holds
            class names and hyperparameters, but no code.

    Returns:
        The policy.

    Raises:
        RunError: there is no readable checkpoint, or the checkpoint names an unknown network or one
            that its class does not make again.

    Example:
        >>> import tempfile
        >>> import jax
        >>> import jax.numpy as jnp
        >>> import ppo_mask as pm
        >>> model = pm.MLPActorCritic(3, 2, key=jax.random.key(0))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pm.save_policy(model, f"{folder}/policy")
        ...     policy = pm.load_policy(f"{folder}/policy")
        >>> int(policy(jnp.zeros(3), jnp.array([False, True])))
        1
    """
    saved = _checkpoint_of(path)
    known: dict[str, Any] = {network.__name__: network for network in (*_KNOWN, *networks)}
    architecture = saved.about["architecture"]
    try:
        like = eqx.filter_eval_shape(lambda: as_model(build(architecture, known)))
    except UnknownNetwork as error:
        raise RunError(
            f"checkpoint {saved.path} is of the network {error}; give its class to load_policy, "
            f"which knows {', '.join(known)}"
        ) from error
    except Exception as error:  # A custom constructor may raise anything.
        raise RunError(
            f"checkpoint {saved.path} is of {_words(architecture)}, which cannot be made again: "
            f"{type(error).__name__}: {first_line(error)}"
        ) from error
    return Policy(saved.restore(like, prefix="model."))


def load_weights(path: str | Path | Checkpoint, model: ModelLike) -> Model:
    """Loads a saved policy's weights into a network, to train it further.

    Args:
        path: a run, checkpoint or saved policy, as for :func:`load_policy`.
        model: a network of the policy's architecture, such as ``trainer.init(...).model``. Arrays
            in the network may be ``jax.ShapeDtypeStruct``.

    Returns:
        The model with the policy's arrays.

    Raises:
        RunError: there is no readable checkpoint, or its policy has another architecture.

    Example:
        >>> import tempfile
        >>> import equinox as eqx
        >>> import jax
        >>> import ppo_mask as pm
        >>> trained, fresh = (pm.MLPActorCritic(3, 2, key=jax.random.key(i)) for i in range(2))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     pm.save_policy(trained, f"{folder}/policy")
        ...     model = pm.checkpoints.load_weights(f"{folder}/policy", fresh)
        >>> bool(eqx.tree_equal(model.network, trained))
        True
    """
    saved, model = _checkpoint_of(path), as_model(model)
    there = saved.about["architecture"]
    if not is_architecture_of(there, model):
        asked = architecture_of(model)
        raise RunError(f"policy {saved.path} is {_words(there)}; this run trains {_words(asked)}")
    return saved.restore(model, prefix="model.")


def _checkpoint_of(path: str | Path | Checkpoint) -> Checkpoint:
    """Returns the checkpoint to load; for a run, the newest checkpoint."""
    if isinstance(path, Checkpoint):
        return path
    if is_url(str(path)):
        run, step = find_run(str(path), "")
        return run.checkpoint(step)
    run = RunDir(known_path(str(path)))
    return run.checkpoint() if run.config.is_file() else Checkpoint.read(run.path)


def _words(architecture: Any) -> str:
    """Describes an architecture in one line."""
    of: Any = architecture.get("hyperparameters") if isinstance(architecture, dict) else None
    if not isinstance(of, dict):
        return json.dumps(architecture)
    sizes = ", ".join(f"{name}={_words(value)}" for name, value in of.items())
    return f"{architecture['network']}({sizes})"
