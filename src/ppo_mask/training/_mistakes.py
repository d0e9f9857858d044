"""Explains in one line why an environment, a network and metrics do not fit together.

The search for the mistake traces the environment once more, so it begins only after an error.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs import AbstractEnv
from ppo_mask.envs._shapes import Shapes, shapes_of
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.errors import RunError, reason_of, short_tracebacks
from ppo_mask.jax_tools._trees import describe_shapes
from ppo_mask.networks import MaskedCategorical, MaskedMultiCategorical, Model, static_fields
from ppo_mask.training._metrics import Metric, with_episode

if TYPE_CHECKING:
    Env: TypeAlias = AbstractEnv[Any]
else:
    Env = Any  # Checked by require_env, with errors that suggest a fix.

# A RuntimeError is of equinox.nn.Dropout without a key, for example.
_OF_TRACING = TypeError, ValueError, LookupError, AttributeError, NameError, RuntimeError


@contextmanager
def explained(
    env: AbstractEnv[Any], model: Model, metrics: Mapping[str, Metric]
) -> Generator[None]:
    """Replaces a tracing error with one line, a RunError, that names the part at fault.

    Other errors stay as they are.
    """
    with short_tracebacks():
        try:
            yield
        except _OF_TRACING as error:
            if not isinstance(error, RuntimeError) or type(error) is RuntimeError:
                _find_mistake(env, model, metrics)
            raise error


def _find_mistake(env: AbstractEnv[Any], model: Model, metrics: Mapping[str, Metric]) -> None:
    try:
        shapes = shapes_of(env)
    except _OF_TRACING:
        return  # A bug in reset or step, which has its own message.
    _check_model(model, shapes, env.num_actions)
    for name, metric in metrics.items():
        _check_metric(name, metric, shapes, env.num_actions)


def _check_model(model: Model, shapes: Shapes, num_actions: NumActions) -> None:
    timestep = shapes.timestep
    mask = timestep.action_mask
    for name, value in static_fields(model.network).items():
        if any(isinstance(x, jax.Array | np.ndarray) for x in jax.tree.leaves(value)):
            _refuse_model(model, f"has an array in its static field {name}; make it a plain field")
    given = f"observation {_words(timestep.observation)}, action_mask {_words(mask)}"
    try:
        hidden, result = eqx.filter_eval_shape(_outputs, model, timestep.observation, mask)
    except _OF_TRACING as error:
        reason = reason_of(error)
        _refuse_model(model, f"cannot be called with the environment's {given}: {reason}", error)
    actions = Actions.of(num_actions)
    wanted = MaskedMultiCategorical if actions.has_parts else MaskedCategorical
    results = [f"a {wanted.__name__}", "a value", *(["the next hidden state"] if hidden else [])]
    is_tuple = isinstance(result, tuple) and len(result) == len(results)
    if not is_tuple or not isinstance(result[0], wanted):
        _refuse_model(model, f"must give {', '.join(results[:-1])} and {results[-1]}")
    if result[0].choices != num_actions:
        why = f"chooses of {Actions.of(result[0].choices)}, and the environment has {actions}"
        _refuse_model(model, why)
    if getattr(result[1], "shape", None) != ():
        _refuse_model(model, f"must give a value of one number, not {_words(result[1])}")
    for first in hidden:
        was, now = _shapes(first), _shapes(result[2])
        if was != now or None in was[1]:
            words = [eqx.tree_pformat(x, struct_as_array=True) for x in (first, result[2])]
            why = "a hidden state is of arrays that keep their shapes"
            _refuse_model(model, f"begins with the hidden state {' and gives '.join(words)}; {why}")


def _outputs(model: Model, observation: Any, mask: Any) -> Any:
    """Returns a list of the first hidden state, empty without one, and what the network gives."""
    network: Any = model.network
    inputs = model.inputs(model.reader.features(observation))
    if not hasattr(network, "initial_hidden"):
        return [], network(inputs, mask)
    hidden = network.initial_hidden()
    return [hidden], network.advance(inputs, mask, hidden)


def _shapes(tree: Any) -> tuple[Any, list[Any]]:
    leaves, structure = jax.tree.flatten(tree)
    return structure, [getattr(leaf, "shape", None) for leaf in leaves]


def _refuse_model(model: Model, why: str, error: Exception | None = None) -> NoReturn:
    name, own = type(model.network).__name__, type(model.network).__module__
    hint = "; ppo_mask.network_for(env, key=key) makes one that fits"
    raise RunError(
        f"the network {name} {why}{hint if own.startswith('ppo_mask.') else ''}"
    ) from error


def _check_metric(name: str, metric: Metric, shapes: Shapes, num_actions: NumActions) -> None:
    number, count = jax.ShapeDtypeStruct((), jnp.float32), jax.ShapeDtypeStruct((), jnp.int32)
    info = with_episode(shapes.timestep.info, number, count)
    try:
        action = jax.ShapeDtypeStruct(Actions.of(num_actions).shape, jnp.int32)
        given = [jax.eval_shape(metric.value, action, info)]
        given += [] if metric.where is None else [jax.eval_shape(metric.where, info)]
    except KeyError as error:
        there = ", ".join(info) or "nothing"
        raise RunError(
            f"metric {name} asks for info {error}, and the environment's info has {there}"
        ) from error
    except _OF_TRACING as error:
        raise RunError(f"metric {name} fails: {reason_of(error)}") from error
    for value in given:
        if getattr(value, "shape", None) != ():
            raise RunError(f"metric {name} must give one number for a step, not {_words(value)}")


def _words(tree: Any) -> str:
    shapes = describe_shapes(tree)
    return shapes[""] if list(shapes) == [""] else str(shapes)
