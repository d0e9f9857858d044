"""The default network for an environment, and one-line descriptions of networks."""

import inspect
import math
from collections.abc import Callable
from typing import Any

import jax
from jaxtyping import Array, Key

from ppo_mask.envs.actions import Actions
from ppo_mask.errors import warn
from ppo_mask.jax_tools._trees import describe_shapes, python_scalar
from ppo_mask.networks._actor_critic import AbstractActorCritic
from ppo_mask.networks._conv import ConvActorCritic
from ppo_mask.networks._gru import GRUActorCritic
from ppo_mask.networks._mlp import MLPActorCritic
from ppo_mask.networks._model import Model
from ppo_mask.networks._policy import ModelLike, as_model
from ppo_mask.networks._reader import ArrayReader, find_grid
from ppo_mask.networks._sets import SetActorCritic, SetReader, by_name
from ppo_mask.networks.layers import observation_shapes, size_of

_LARGE = 100  # Cells per side; larger images are slow to learn from, which a warning says.
_SHOWN = 4  # arrays; an observation with more arrays is summarized


_NETWORKS: dict[str, Callable[..., AbstractActorCritic]] = {
    "mlp": MLPActorCritic,
    "gru": GRUActorCritic,
    "conv": ConvActorCritic,
    "sets": SetActorCritic,
}


def network_for(
    env: Any,
    kind: str | None = None,
    *,
    key: Key[Array, ""],
    channels_first: bool | None = None,
    **sizes: Any,
) -> Model:
    """Makes a model for an environment: a network, and a reader of the environment's observations.

    Args:
        env: an :class:`~ppo_mask.envs.AbstractEnv` with any observation of numbers.
        kind: "mlp" for an :class:`MLPActorCritic`, "gru" for a :class:`GRUActorCritic`, "conv" for
            a :class:`ConvActorCritic`, or "sets" for a :class:`SetActorCritic`; None
            for convolutions where the observation has an image or a board, else an MLP.
        key: the random key of the initial weights.
        channels_first: whether the first axis of an image or board has its channels; see
            :meth:`ArrayReader.for_env`.
        sizes: arguments of the network's constructor, such as ``hidden_dim``. With no ``kind``, an
            argument that the network does not have is not used. For "sets", ``sets`` may say which
            arrays are sets, as :class:`SetReader` takes it; else ``observation_sets`` of ``env``.

    Raises:
        ValueError: the observation has no numbers, no image or board for "conv", or no sets that
            fit the actions for "sets"; a size is invalid; or there is no such network.
        TypeError: a ``kind`` is given, and its network has no such size.

    Example:
        >>> import jax, ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks()
        >>> pm.network_for(env, key=jax.random.key(0))
        Model(MLPActorCritic, 141,089 parameters)
        >>> pm.network_for(env, "gru", hidden_dim=64, key=jax.random.key(0))
        Model(GRUActorCritic, 27,233 parameters)
    """
    if kind not in (None, *_NETWORKS):
        raise ValueError(f"there is no network {kind!r}; there are {', '.join(_NETWORKS)}")
    observation = observation_shapes(env)
    chosen = kind
    if chosen is None:
        chosen = "mlp" if find_grid(env, observation, channels_first) is None else "conv"
    sets = sizes.pop("sets", None) if chosen == "sets" else None
    make, sizes = _NETWORKS[chosen], jax.tree.map(python_scalar, sizes)
    if kind is None:
        known = inspect.signature(make).parameters
        sizes = {name: size for name, size in sizes.items() if name in known}
    if chosen == "sets":
        reader, *inputs = _read_sets(env, observation, sets)
    else:
        reader, *inputs = _read_arrays(env, observation, chosen == "conv", channels_first)
    return Model(reader, make(*inputs, env.num_actions, key=key, **sizes))


def _read_arrays(
    env: Any, observation: Any, grid: bool, channels_first: bool | None
) -> tuple[Any, ...]:
    """Returns a reader, and what a network needs to know of the numbers that it reads."""
    reader = ArrayReader.for_env(env, grid=grid, channels_first=channels_first)
    if reader.grid_shape is None:
        return reader, size_of(observation)
    _warn_if_large(reader, observation)
    return reader, reader.cells, size_of(observation) - math.prod(reader.grid_shape)


def _read_sets(env: Any, observation: Any, sets: Any) -> tuple[Any, ...]:
    """Returns a reader, the shapes of the sets, and the size of the rest."""
    sets = sets or getattr(env, "observation_sets", None)
    if not sets:
        raise ValueError(
            f"which of {', '.join(by_name(observation))} are sets? The environment's "
            "observation_sets, or sets=, says so; see ppo_mask.networks.SetReader"
        )
    reader = SetReader(sets)
    found, rest = jax.eval_shape(lambda x: reader.join(reader.features(x)), observation)
    return reader, tuple(x.shape for x, _ in found), rest.size


def _warn_if_large(reader: ArrayReader, observation: Any) -> None:
    rows, columns, _ = reader.cells
    if max(rows, columns) > _LARGE:
        warn(
            f"images of {rows} x {columns} make an update about {rows * columns / 84**2:.0f} "
            f"times as long as 84 x 84, and each step of a rollout keeps "
            f"{size_of(observation):,} numbers; ResizeObservation, GrayscaleObservation and "
            "FrameStackObservation of gymnasium.wrappers shrink and stack them"
        )


def describe_network(model: ModelLike, env: Any, observation: Any = None) -> str:
    """Describes in one line an environment's observation, a network, and the actions.

    Args:
        model: any model, or a network.
        env: the environment that the model is for.
        observation: the shapes of an observation, if known; None traces ``env.reset`` to find them.

    Example:
        >>> import jax, ppo_mask as pm
        >>> env = pm.envs.probes.MaskedLocks(keys=2)
        >>> model = pm.network_for(env, hidden_dim=8, key=jax.random.key(0))
        >>> print(pm.networks.describe_network(model, env))
        float32[1] -> MLPActorCritic, 299 parameters -> 32 actions
    """
    model = as_model(model)
    observation = observation_shapes(env) if observation is None else observation
    arrays = describe_shapes(observation)
    shown = ", ".join(f"{name.lstrip('.')} {shape}".strip() for name, shape in arrays.items())
    if len(arrays) > _SHOWN:
        shown = f"{len(arrays)} arrays of {size_of(observation):,} numbers"
    made = f"{model.description}{_describe_inputs(model)}, {model.num_parameters:,} parameters"
    return f"{shown} -> {made} -> {Actions.of(env.num_actions)}"


def _describe_inputs(model: Model) -> str:
    """Describes sets, and how a reader reads a grid; empty without these."""
    reader, network = model.reader, model.network
    if isinstance(network, SetActorCritic):
        return f" (sets of {', '.join(f'{n} x {m}' for n, m in network.set_shapes)})"
    if not isinstance(reader, ArrayReader) or reader.grid_shape is None:
        return ""
    rows, columns, channels = reader.cells
    if reader.kinds is not None:
        return f" ({rows} x {columns} cells of {channels} kinds)"
    order = "first" if reader.channels_first else "last"
    return f" ({rows} x {columns} cells, {channels} channels, which come {order})"
