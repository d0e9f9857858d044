"""What an environment gives, found out without running it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from ppo_mask.envs._env import AbstractEnv, TimeStep
from ppo_mask.errors import ProtocolError, user_line
from ppo_mask.jax_tools import ArrayTree, describe_shapes
from ppo_mask.networks.choices import action_shape, mask_length


class Shapes(NamedTuple):
    """``jax.ShapeDtypeStruct`` in place of arrays.

    Attributes:
        state: of one environment.
        timestep: of one step.
    """

    state: ArrayTree
    timestep: TimeStep


def shapes_of(env: AbstractEnv[Any]) -> Shapes:
    """Traces ``reset`` and ``step``, and makes sure that their types obey the protocol.

    Args:
        env: the environment.

    Raises:
        ProtocolError: they do not; one line.
    """
    count: Any = env.num_actions
    _require_counts(count)
    key = jax.random.key(0)
    state, first = _traced("reset", lambda: jax.eval_shape(lambda key: env.reset(key), key))
    action = jax.ShapeDtypeStruct(action_shape(count), jnp.int32)

    def step(*arguments: Any) -> Any:
        return env.step(*arguments)

    after, second = _traced("step", lambda: jax.eval_shape(step, key, state, action))
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path)
        require(not typed_key, f"state{name} is a random key; a key is an argument, never stored")
    _require_same_types("state", state, after)
    _require_same_types("timestep", first, second)
    mask = describe_shapes(first)[".action_mask"]
    wanted = f"bool[{mask_length(count)}]"
    law = f"timestep.action_mask is {mask}, not {wanted}: num_actions is {count}"
    require(mask == wanted, law)
    return Shapes(state, second)


def require(holds: Any, law: str) -> None:
    """Raises a ProtocolError that says ``law`` unless it holds."""
    if not holds:
        raise ProtocolError(law)


def _require_counts(count: Any) -> None:
    """Makes sure that a number of actions is one, or a tuple of some."""
    parts: Any = count if isinstance(count, tuple) else (count,)
    fits = parts and all(isinstance(n, int) and n >= 1 for n in parts)
    kind = " or a tuple of some" if isinstance(count, tuple | list) else ""
    require(fits, f"num_actions is {count!r}, not a positive int{kind}")


def _require_same_types(what: str, reset: Any, step: Any) -> None:
    before, after = describe_shapes(reset), describe_shapes(step)
    for name in sorted(before.keys() | after.keys()):
        was, is_ = before.get(name, "nothing"), after.get(name, "nothing")
        require(was == is_, f"{what}{name} is {was} from reset but {is_} from step")
    same = jax.tree.structure(reset) == jax.tree.structure(step)
    require(same, f"{what} has another tree structure from reset than from step")


def _traced(name: str, call: Callable[[], Any]) -> tuple[Any, TimeStep]:
    try:
        result = call()
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0].rstrip(".")
        instead = "; jnp.where and jax.lax.cond choose by a value of JAX's"
        is_choice = isinstance(error, jax.errors.TracerBoolConversionError)
        raise ProtocolError(
            f"{name} cannot be compiled by jax.jit: {reason}{user_line(error.__traceback__)}"
            f"{instead if is_choice else ''}"
        ) from error
    fits = isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], TimeStep)
    require(fits, f"{name} must return a state and a TimeStep")
    return result
