"""Explains in one line why an environment, a network and metrics do not fit together.

The search for the mistake traces the environment once more, so it begins only after an error.
"""

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import TypeCheckError

from ppo_mask.envs import AbstractEnv, Shapes, shapes_of
from ppo_mask.envs.actions import Actions, NumActions
from ppo_mask.errors import RunError, short_tracebacks, user_line
from ppo_mask.jax_tools import describe_shapes
from ppo_mask.networks import MaskedCategorical, MaskedMultiCategorical, Model
from ppo_mask.training._metrics import Metric

if TYPE_CHECKING:
    Env: TypeAlias = AbstractEnv[Any]
else:
    Env = Any  # Checked by require_env, with errors that suggest a fix.

_OF_TRACING = (TypeError, ValueError, LookupError, AttributeError, TypeCheckError)


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
    given = f"observation {_words(timestep.observation)}, action_mask {_words(mask)}"
    try:
        result = eqx.filter_eval_shape(_outputs, model, timestep.observation, mask)
    except _OF_TRACING as error:
        reason = _reason(error)
        _refuse_model(model, f"cannot be called with the environment's {given}: {reason}", error)
    is_pair = isinstance(result, tuple) and len(result) == 2
    actions = Actions.of(num_actions)
    wanted = MaskedMultiCategorical if actions.has_parts else MaskedCategorical
    if not is_pair or not isinstance(result[0], wanted):
        _refuse_model(model, f"must give a {wanted.__name__} and a value")
    if result[0].choices != num_actions:
        why = f"chooses of {Actions.of(result[0].choices)}, and the environment has {actions}"
        _refuse_model(model, why)
    if getattr(result[1], "shape", None) != ():
        _refuse_model(model, f"must give a value of one number, not {_words(result[1])}")


def _outputs(model: Model, observation: Any, mask: Any) -> Any:
    return model.network(model.inputs(model.reader.features(observation)), mask)


def _refuse_model(model: Model, why: str, error: Exception | None = None) -> NoReturn:
    name, own = type(model.network).__name__, type(model.network).__module__
    hint = "; ppo_mask.network_for(env, key=key) makes one that fits"
    raise RunError(
        f"the network {name} {why}{hint if own.startswith('ppo_mask.') else ''}"
    ) from error


def _check_metric(name: str, metric: Metric, shapes: Shapes, num_actions: NumActions) -> None:
    info = shapes.timestep.info
    try:
        action = jax.ShapeDtypeStruct(Actions.of(num_actions).shape, jnp.int32)
        value = jax.eval_shape(metric.value, action, info)
    except KeyError as error:
        there = ", ".join(info) or "nothing"
        raise RunError(
            f"metric {name} asks for info {error}, and the environment's info has {there}"
        ) from error
    except _OF_TRACING as error:
        raise RunError(f"metric {name} fails: {_reason(error)}") from error
    if getattr(value, "shape", None) != ():
        raise RunError(f"metric {name} must give one number for a step, not {_words(value)}")


def _reason(error: Exception) -> str:
    """Describes an error in one line, with the line of code that raised it."""
    lines = str(error).splitlines() or [type(error).__name__]
    return lines[0].rstrip(".") + user_line(error.__traceback__)


def _words(tree: Any) -> str:
    shapes = describe_shapes(tree)
    return shapes[""] if list(shapes) == [""] else str(shapes)
