"""Puts an environment through the protocol's laws."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, TypeCheckError

from ppo_mask._types import ArrayTree
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.env import AbstractEnv, TimeStep

_NUM_ENVS = 8


class ProtocolError(AssertionError):
    """An environment breaks a law of the protocol; the message is one line and names it."""


def check_env(
    env: AbstractEnv[Any],
    *,
    key: Key[Array, ""] | None = None,
    num_steps: int = 200,
    deterministic: bool = False,
) -> None:
    """Tests every law of :class:`ppo_mask.env.AbstractEnv` by playing random allowed actions.

    Args:
        env: the environment.
        key: for the play; fixed by default.
        num_steps: in each of 8 environments; enough for some episodes to end, best.
        deterministic: the environment declares that it draws nothing, so that its key has no
            effect.

    Raises:
        ProtocolError: a law is broken.
    """
    key = jax.random.key(0) if key is None else key
    keys = jax.random.split(key, 4)
    _check_types(env, keys[0])
    play = _play(env, keys[1], num_steps)
    _check_masks(play)
    _check_purity(env, keys[2], play)
    _check_keys(env, keys[2], play, deterministic)
    _check_batching(env, keys[3], play)
    _check_forbidden_actions(env, keys[3], play)


def _require(holds: Any, law: str) -> None:
    if not holds:
        raise ProtocolError(law)


def _describe(tree: ArrayTree) -> dict[str, str]:
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {jax.tree_util.keystr(path): f"{x.dtype}{list(x.shape)}" for path, x in leaves}


def _require_same_types(what: str, reset: ArrayTree, step: ArrayTree) -> None:
    before, after = _describe(reset), _describe(step)
    for name in sorted(before.keys() | after.keys()):
        was, is_ = before.get(name, "nothing"), after.get(name, "nothing")
        _require(was == is_, f"{what}{name} is {was} from reset but {is_} from step")
    same = jax.tree.structure(reset) == jax.tree.structure(step)
    _require(same, f"{what} has another tree structure from reset than from step")


def _require_array_leaves(what: str, tree: Any) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(tree):
        name = what + jax.tree_util.keystr(path)
        _require(eqx.is_array(leaf), f"{name} is a {type(leaf).__name__}, not a JAX array")


def _check_types(env: AbstractEnv[Any], key: Key[Array, ""]) -> None:
    count: Any = env.num_actions
    _require(isinstance(count, int) and count >= 1, f"num_actions is {count!r}, not a positive int")
    state, first = _compiled("reset", lambda: jax.jit(env.reset)(key))
    _require(isinstance(first, TimeStep), "reset must return a state and a TimeStep")
    _require_array_leaves("state", state)
    action = jnp.argmax(first.action_mask).astype(jnp.int32)
    after, second = _compiled("step", lambda: jax.jit(env.step)(key, state, action))
    _require(isinstance(second, TimeStep), "step must return a state and a TimeStep")
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path)
        _require(not typed_key, f"state{name} is a random key; a key is an argument, never stored")
    _require_same_types("state", state, after)
    _require_same_types("timestep", first, second)

    flag, mask = "bool[]", f"bool[{count}]"
    described = _describe(first)
    for name, wanted in ((".terminated", flag), (".truncated", flag), (".action_mask", mask)):
        _require(described[name] == wanted, f"timestep{name} is {described[name]}, not {wanted}")
    is_number = jnp.issubdtype(first.reward.dtype, jnp.floating) and first.reward.shape == ()
    _require(is_number, f"timestep.reward is {described['.reward']}, not a floating-point scalar")
    _require(first.reward == 0, f"reset must give reward 0, not {first.reward}")
    _require(not first.terminated, "reset must not give terminated")
    _require(not first.truncated, "reset must not give truncated")


def _compiled(name: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except jax.errors.JAXTypeError as error:
        reason = str(error).splitlines()[0]
        raise ProtocolError(f"{name} cannot be compiled by jax.jit: {reason}") from error
    except TypeCheckError as error:
        reason = " ".join(str(error).split("----")[0].split())
        raise ProtocolError(f"{name} makes a wrong TimeStep: {reason}") from error


class _Play(eqx.Module):
    """Random play; leading axes [steps, envs]. ``state`` is that before the action."""

    state: ArrayTree
    before: TimeStep
    action: Int[Array, "steps envs"]
    after: TimeStep

    def single(self, step: int, env: int) -> tuple[ArrayTree, Int[Array, ""]]:
        """The state before and the action of one step of one environment."""
        return jax.tree.map(lambda x: x[step, env], (self.state, self.action))


def _play(env: AbstractEnv[Any], key: Key[Array, ""], num_steps: int) -> _Play:
    def step(carry: Any, key: Any) -> Any:
        state, before = carry
        action_key, step_key, reset_key = jax.random.split(key, 3)
        logits = jnp.zeros(env.num_actions)
        action = MaskedCategorical(logits, before.action_mask).sample(action_key)
        new_state, after = env.step(step_key, state, action)
        ended = after.terminated | after.truncated
        carry = jax.tree.map(
            lambda fresh, old: jnp.where(ended, fresh, old),
            env.reset(reset_key),
            (new_state, after),
        )
        return carry, (state, before, action, after)

    def play(key: Any) -> Any:
        reset_key, steps_key = jax.random.split(key)
        keys = jax.random.split(steps_key, num_steps)
        return jax.lax.scan(step, env.reset(reset_key), keys)[1]

    many = jax.jit(jax.vmap(play, out_axes=1))
    return _Play(*_compiled("step", lambda: many(jax.random.split(key, _NUM_ENVS))))


def _check_masks(play: _Play) -> None:
    for mask in (play.before.action_mask, play.after.action_mask):
        _require(mask.any(axis=-1).all(), "action_mask must never be all False")
    ended = play.after.terminated | play.after.truncated
    everything = play.after.action_mask.all(axis=-1)
    _require((everything | ~ended).all(), "action_mask must be all True where the episode ended")
    _require(jnp.isfinite(play.after.reward).all(), "reward must be finite")
    _require(_finite(play.before.observation), "observation must be finite (reset)")
    _require(_finite(play.after.observation), "observation must be finite (step)")


def _finite(tree: ArrayTree) -> Bool[Array, ""]:
    floats = jax.tree.leaves(eqx.filter(tree, eqx.is_inexact_array))
    return jnp.array([jnp.isfinite(x).all() for x in floats]).all()


def _close(one: ArrayTree, other: ArrayTree) -> bool:
    """Equal, but for rounding in another order."""

    def close(x: Array, y: Array) -> bool:
        if jnp.issubdtype(x.dtype, jnp.inexact):
            return np.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        return np.array_equal(x, y)

    return jax.tree.all(jax.tree.map(close, one, other))


def _check_purity(env: AbstractEnv[Any], key: Key[Array, ""], play: _Play) -> None:
    for name, call in (
        ("reset", lambda: env.reset(key)),
        ("step", lambda: env.step(key, *play.single(0, 0))),
    ):
        first, second = call(), call()
        _require(_close(first, second), f"{name} must be pure: twice the same call, two results")
        compiled = jax.jit(call)()
        _require(_close(first, compiled), f"{name} must mean the same compiled and not compiled")


def _check_keys(
    env: AbstractEnv[Any], key: Key[Array, ""], play: _Play, deterministic: bool
) -> None:
    keys = jax.random.split(key, 64)
    starts = jax.jit(jax.vmap(env.reset))(keys)
    matters = _varies(starts)
    step = jax.jit(jax.vmap(env.step, in_axes=(0, None, None)))
    for i in np.linspace(0, len(play.action) - 1, 8).astype(int):
        matters = matters or _varies(step(keys, *play.single(int(i), int(i) % _NUM_ENVS)))
    if deterministic:
        _require(not matters, "key must have no effect, since deterministic=True was declared")
    else:
        _require(matters, "key is not used (pass deterministic=True if nothing is random)")


def _varies(tree: ArrayTree) -> bool:
    return any(bool((x != x[:1]).any()) for x in jax.tree.leaves(tree))


def _check_batching(env: AbstractEnv[Any], key: Key[Array, ""], play: _Play) -> None:
    state, action = jax.tree.map(lambda x: x[-1], (play.state, play.action))
    keys = jax.random.split(key, _NUM_ENVS)
    resets = jax.vmap(env.reset)(keys)
    steps = jax.vmap(env.step)(keys, state, action)
    single_reset, single_step = jax.jit(env.reset), jax.jit(env.step)
    for i in range(_NUM_ENVS):
        reset, step, own_state = jax.tree.map(lambda x, i=i: x[i], (resets, steps, state))
        law = "must give the same batched by jax.vmap as alone"
        _require(_close(reset, single_reset(keys[i])), f"reset {law}")
        _require(_close(step, single_step(keys[i], own_state, action[i])), f"step {law}")


def _check_forbidden_actions(env: AbstractEnv[Any], key: Key[Array, ""], play: _Play) -> None:
    state, mask = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:]), (play.state, play.before.action_mask)
    )
    action = jnp.argmin(mask, axis=-1).astype(jnp.int32)
    keys = jax.random.split(key, len(action))
    try:
        _, after = jax.jit(jax.vmap(env.step))(keys, state, action)
        jax.block_until_ready(after)
    except Exception as error:
        reason = str(error).splitlines()[0]
        raise ProtocolError(f"a forbidden action must not crash step: {reason}") from error
    _require(after.action_mask.any(axis=-1).all(), "action_mask is all False after a forbidden one")
    _require(jnp.isfinite(after.reward).all(), "reward must be finite after a forbidden action")
    _require(_finite(after.observation), "observation must be finite after a forbidden action")
