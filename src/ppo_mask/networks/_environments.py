"""What an environment has to be, found out without running it, before a network is made for it.

Networks are below environments, so the classes of :mod:`ppo_mask.envs` are known here by name.
"""

import inspect
from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax

from ppo_mask.errors import ProtocolError, RunError, short_tracebacks, user_line

_UNTRACEABLE = (jax.errors.JAXTypeError, jax.errors.JAXIndexError)


def require_env(env: Any) -> None:
    """Makes sure that something is an environment, with a number of actions.

    Raises:
        RunError: it is something else.
        ProtocolError: ``num_actions`` is no number of actions.
    """
    if isinstance(env, type) and _is_a("AbstractEnv", env):
        name = env.__name__
        raise RunError(f"env is the class {name}; make an environment of it: {name}()")
    if _is_a("AbstractEnv", type(env)):
        _require_counts(env.num_actions)
        return
    kinds = {kind.__module__.partition(".")[0] for kind in inspect.getmro(type(env))}
    hint = "; see docs/own_environment.md"
    for library in ("gymnasium", "gymnax", "jumanji", "pgx", "navix"):
        if library in kinds:
            module = "from_gymnasium.GymnasiumEnv" if library == "gymnasium" else library
            hint = f"; it is one of {library}'s, which ppo_mask.adapters.{module} takes in"
    raise RunError(f"env must be an AbstractEnv, got {type(env).__name__}{hint}")


def trace_call(name: str, call: Callable[..., Any], *args: Any) -> tuple[Any, Any]:
    """The shapes of the state and the timestep that ``reset`` or ``step`` returns.

    Args:
        name: which of the two it is.
        call: it.
        args: its arguments, or their shapes.

    Returns:
        ``jax.ShapeDtypeStruct`` in place of arrays.

    Raises:
        ProtocolError: it cannot be compiled, or returns something else; one line.
    """

    def checked(*args: Any) -> tuple[Any, Any]:
        result = call(*args)
        _require_result(name, result)
        return result

    with short_tracebacks():
        try:
            return jax.eval_shape(checked, *args)
        except _UNTRACEABLE as error:
            reason = str(error).splitlines()[0].rstrip(".")
            instead = "; jnp.where and jax.lax.cond choose by a value of JAX's"
            is_choice = isinstance(error, jax.errors.TracerBoolConversionError)
            raise ProtocolError(
                f"{name} cannot be compiled by jax.jit: {reason}{user_line(error.__traceback__)}"
                f"{instead if is_choice else ''}"
            ) from error


def _require_counts(count: Any) -> None:
    """Makes sure that a number of actions is one, or a tuple of some."""
    parts: Any = count if isinstance(count, tuple) else (count,)
    if parts and all(isinstance(n, int) and n >= 1 for n in parts):
        return
    kind = " or a tuple of some" if isinstance(count, tuple | list) else ""
    raise ProtocolError(f"num_actions is {count!r}, not a positive int{kind}")


def _require_result(name: str, result: Any) -> None:
    parts: Any = cast(Any, result) if isinstance(result, tuple) else (result,)
    if len(parts) != 2 or not _is_a("TimeStep", type(parts[1])):
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


def _is_a(name: str, kind: type) -> bool:
    bases = inspect.getmro(kind)
    return any(b.__name__ == name and b.__module__.startswith("ppo_mask.envs.") for b in bases)
