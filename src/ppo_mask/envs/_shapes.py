"""The shapes and types of an environment, found by tracing and without running it."""

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import equinox as eqx
import jax
import jax.numpy as jnp

from ppo_mask.envs._env import AbstractEnv, TimeStep, masks_parts_in_turn, require_same_types
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import ProtocolError, RunError, reason_of, short_tracebacks
from ppo_mask.jax_tools import ArrayTree
from ppo_mask.jax_tools._trees import describe_shapes

if TYPE_CHECKING:
    Env: TypeAlias = AbstractEnv[Any]
else:
    Env = Any  # Checked by require_env, with errors that suggest a fix.

_UNTRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)


def require_env(env: Any) -> None:
    """Checks that ``env`` is an environment with a valid ``num_actions``.

    Raises:
        RunError: ``env`` is not an environment.
        ProtocolError: ``num_actions`` is neither a positive int nor a tuple of positive ints; or a
            wrapper does not pass ``part_mask`` on.
    """
    if isinstance(env, type) and issubclass(env, AbstractEnv):
        name = env.__name__
        raise RunError(f"env is the class {name}; pass an instance of it: {name}()")
    if isinstance(env, AbstractEnv):
        Actions.of(env.num_actions)
        masks_parts_in_turn(env)
        return
    kinds = {kind.__module__.partition(".")[0] for kind in inspect.getmro(type(env))}
    hint = "; see docs/own_environment.md"
    for library in ("gymnasium", "gymnax", "jumanji", "pgx", "navix"):
        if library in kinds:
            module = "from_gymnasium.GymnasiumEnv" if library == "gymnasium" else library
            hint = f"; it is one of {library}'s: wrap it with ppo_mask.adapters.{module}"
    raise RunError(f"env must be an AbstractEnv, got {type(env).__name__}{hint}")


def trace_call(name: str, call: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """Traces ``reset`` or ``step`` to find the shapes of the returned state and timestep.

    Args:
        name: "reset" or "step".
        call: the method.
        args: the method's arguments, or their shapes.

    Returns:
        The state and the timestep, with ``jax.ShapeDtypeStruct`` in place of arrays.

    Raises:
        ProtocolError: the method cannot be compiled, or does not return a state and a timestep.
    """

    def checked(*args: Any) -> tuple[Any, Any]:
        result = call(*args)
        _require_result(name, result)
        return result

    with short_tracebacks():
        try:
            return jax.eval_shape(checked, *args)
        except _UNTRACEABLE as error:
            raise ProtocolError(
                f"{name} cannot be compiled by jax.jit: {reason_of(error)}"
            ) from error


class Shapes(NamedTuple):
    """An environment's state and timestep, with ``jax.ShapeDtypeStruct`` in place of arrays.

    Attributes:
        state: the state of one environment.
        timestep: the timestep of one step.
    """

    state: ArrayTree
    timestep: TimeStep


def shapes_of(env: Env) -> Shapes:
    """Traces ``reset`` and ``step``, and checks that their types obey the protocol.

    Args:
        env: the environment.

    Raises:
        ProtocolError: the types break the protocol.
        RunError: ``env`` is not an environment.
    """
    require_env(env)
    actions = Actions.of(env.num_actions)
    key = jax.random.key(0)
    state, first = trace_call("reset", env.reset, key)
    action = jax.ShapeDtypeStruct(actions.shape, jnp.int32)
    after, second = trace_call("step", env.step, key, state, action)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path)
        law = (
            f"state{name} is a random key; a key is an argument, never stored: use the key of "
            "step, and give a library that stores its key jax.random.key_data(key) instead"
        )
        require(not typed_key, law)
    require_same_types("state", state, after)
    require_same_types("timestep", first, second)
    mask = describe_shapes(first)[".action_mask"]
    wanted = f"bool[{actions.length}]"
    law = f"timestep.action_mask is {mask}, not {wanted}: num_actions is {env.num_actions}"
    require(mask == wanted, law)
    for k, size in enumerate(actions.sizes if masks_parts_in_turn(env) else ()):
        prefix = jax.ShapeDtypeStruct((k,), jnp.int32)
        masks = jax.eval_shape(partial(env.part_mask, k=k), state, prefix)
        shown = describe_shapes(masks).get("", "None")
        law = f"part_mask is {shown} for part {k}, not bool[{size}]"
        require(shown == f"bool[{size}]", law)
    return Shapes(state, second)


def require(holds: Any, law: str) -> None:
    """Raises a ProtocolError with the message ``law``, unless the law holds."""
    if not holds:
        raise ProtocolError(law)


def _require_result(name: str, result: Any) -> None:
    parts: Any = cast(Any, result) if isinstance(result, tuple) else (result,)
    if len(parts) != 2 or not isinstance(parts[1], TimeStep):
        got = " and ".join(map(_kind, parts)) or "nothing"
        raise ProtocolError(f"{name} must return a state and a TimeStep, got {got}")
    for path, leaf in jax.tree_util.tree_leaves_with_path(parts[0]):
        if not eqx.is_array_like(leaf):
            own = type(leaf).__module__ != "builtins"
            hint = "make it an eqx.Module" if own else "keep it in a field of the environment"
            place = jax.tree_util.keystr(path)
            raise ProtocolError(
                f"{name} returns a state{place} that is {_kind(leaf)}, not a tree of arrays; {hint}"
            )


def _kind(thing: Any) -> str:
    return "an array" if eqx.is_array_like(thing) else f"a {type(thing).__name__}"
