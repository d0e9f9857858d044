"""What an environment gives, found out without running it."""

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp

from ppo_mask.envs._env import AbstractEnv, TimeStep
from ppo_mask.errors import ProtocolError
from ppo_mask.jax_tools import ArrayTree, describe_shapes
from ppo_mask.networks import require_env, trace_call
from ppo_mask.networks.choices import action_shape, mask_length

if TYPE_CHECKING:
    Env: TypeAlias = AbstractEnv[Any]
else:
    Env = Any  # Checked by require_env, which says what to do instead.


class Shapes(NamedTuple):
    """``jax.ShapeDtypeStruct`` in place of arrays.

    Attributes:
        state: of one environment.
        timestep: of one step.
    """

    state: ArrayTree
    timestep: TimeStep


def shapes_of(env: Env) -> Shapes:
    """Traces ``reset`` and ``step``, and makes sure that their types obey the protocol.

    Args:
        env: the environment.

    Raises:
        ProtocolError: they do not; one line.
        RunError: it is no environment.
    """
    require_env(env)
    count: Any = env.num_actions
    key = jax.random.key(0)
    state, first = trace_call("reset", env.reset, key)
    action = jax.ShapeDtypeStruct(action_shape(count), jnp.int32)
    after, second = trace_call("step", env.step, key, state, action)
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path)
        require(not typed_key, f"state{name} is a random key; a key is an argument, never stored")
    require_same_types("state", state, after)
    require_same_types("timestep", first, second)
    mask = describe_shapes(first)[".action_mask"]
    wanted = f"bool[{mask_length(count)}]"
    law = f"timestep.action_mask is {mask}, not {wanted}: num_actions is {count}"
    require(mask == wanted, law)
    return Shapes(state, second)


def require(holds: Any, law: str) -> None:
    """Raises a ProtocolError that says ``law`` unless it holds."""
    if not holds:
        raise ProtocolError(law)


def require_same_types(what: str, reset: Any, step: Any) -> None:
    """Raises a ProtocolError that names an array that differs between ``reset`` and ``step``."""
    before, after = describe_shapes(reset), describe_shapes(step)
    for name in sorted(before.keys() | after.keys()):
        was, is_ = before.get(name, "nothing"), after.get(name, "nothing")
        require(was == is_, f"{what}{name} is {was} from reset but {is_} from step")
    same = jax.tree.structure(reset) == jax.tree.structure(step)
    require(same, f"{what} has another tree structure from reset than from step")
