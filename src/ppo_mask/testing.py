"""Puts an environment through the protocol's laws."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int, Key, TypeCheckError

from ppo_mask._types import ArrayTree, described
from ppo_mask.distribution import MaskedCategorical
from ppo_mask.env import AbstractEnv, AbstractSelfResettingEnv, Next, TimeStep

_NUM_ENVS = 8
# Rows of the batched calls that the laws are tested with.
_BATCH = 64


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
    keys = jax.random.split(key, 2 + _BATCH)
    _check_types(env, keys[0])
    _check_purity(env, keys[0])
    play = _play(env, keys[1], num_steps)
    _check_masks(play)
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    keys = keys[2:]
    starts, steps = reset(keys), step(keys, *play.some())
    _check_batching(env, keys, play, starts, steps)
    _check_keys(keys, play, starts, step, deterministic)
    _check_forbidden_actions(keys, play, step)
    if isinstance(env, AbstractSelfResettingEnv):
        _check_step_and_reset(env, keys, play, starts)


def _require(holds: Any, law: str) -> None:
    if not holds:
        raise ProtocolError(law)


def _require_same_types(what: str, reset: Any, step: Any) -> None:
    before, after = described(reset), described(step)
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
    state, first = _compiled("reset", lambda: jax.jit(lambda key: env.reset(key))(key))
    _require(isinstance(first, TimeStep), "reset must return a state and a TimeStep")
    _require_array_leaves("state", state)
    action = jnp.zeros((), jnp.int32)
    after, second = _compiled("step", lambda: jax.eval_shape(env.step, key, state, action))
    _require(isinstance(second, TimeStep), "step must return a state and a TimeStep")
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        typed_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        name = jax.tree_util.keystr(path)
        _require(not typed_key, f"state{name} is a random key; a key is an argument, never stored")
    _require_same_types("state", state, after)
    _require_same_types("timestep", first, second)

    flag, mask = "bool[]", f"bool[{count}]"
    types = described(first)
    for name, wanted in ((".terminated", flag), (".truncated", flag), (".action_mask", mask)):
        _require(types[name] == wanted, f"timestep{name} is {types[name]}, not {wanted}")
    is_number = jnp.issubdtype(first.reward.dtype, jnp.floating) and first.reward.shape == ()
    _require(is_number, f"timestep.reward is {types['.reward']}, not a floating-point scalar")
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

    def some(self) -> tuple[ArrayTree, Int[Array, " batch"]]:
        """States and the actions taken in them, from the whole of the play."""
        state, action = jax.tree.map(
            lambda x: x.reshape(-1, *x.shape[2:]), (self.state, self.action)
        )
        rows = np.linspace(0, len(action) - 1, _BATCH).astype(int)
        return jax.tree.map(lambda x: x[rows], (state, action))


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


def _check_purity(env: AbstractEnv[Any], key: Key[Array, ""]) -> None:
    # Not jit(env.reset): a method of an environment that holds arrays cannot be hashed.
    state, _ = jax.jit(lambda key: env.reset(key))(key)
    action = jnp.zeros((), jnp.int32)
    _require_pure("reset", lambda key: env.reset(key), key)
    _require_pure("step", lambda *args: env.step(*args), key, state, action)


def _require_pure(name: str, function: Callable[..., Any], *args: Any) -> None:
    # Tracing is cheap and shows what Python adds. Programs that differ in print may yet be equal,
    # so only the numbers decide.
    def program() -> str:
        # JAX remembers what it has traced, by function: hence a new one each time.
        traced = jax.make_jaxpr(lambda *args: function(*args))(*args)
        return re.sub("0x[0-9a-f]+", "", str(traced))

    if program() != program():
        results = [jax.jit(lambda *args: function(*args))(*args) for _ in range(2)]
        _require(_close(*results), f"{name} must be pure: twice the same call, two results")


def _check_batching(
    env: AbstractEnv[Any],
    keys: Key[Array, " batch"],
    play: _Play,
    starts: ArrayTree,
    steps: ArrayTree,
) -> None:
    reset = jax.jit(lambda key: env.reset(key))
    step = jax.jit(lambda *args: env.step(*args))
    states, actions = play.some()
    for i in range(0, _BATCH, _BATCH // 8):
        row = partial(jax.tree.map, lambda x, i=i: x[i])
        law = "must give the same batched by jax.vmap as alone"
        _require(_close(row(starts), reset(keys[i])), f"reset {law}")
        _require(_close(row(steps), step(keys[i], row(states), actions[i])), f"step {law}")


def _check_step_and_reset(
    env: AbstractSelfResettingEnv[Any],
    keys: Key[Array, " batch"],
    play: _Play,
    starts: tuple[ArrayTree, TimeStep],
) -> None:
    # Steps that end an episode, at most half of the batch, and others.
    goes_on = ~(play.after.terminated | play.after.truncated).reshape(-1)
    rows = np.argsort(goes_on, stable=True)
    rows = np.concatenate([rows[: _BATCH // 2], rows[-(_BATCH // 2) :]])
    states, actions = jax.tree.map(
        lambda x: x.reshape(-1, *x.shape[2:])[rows], (play.state, play.action)
    )
    step = jax.jit(jax.vmap(env.step))
    state, stepped = step(keys, states, actions)
    final, following = jax.jit(jax.vmap(env.step_and_reset))(keys, keys, states, actions)
    _require(_close(final, stepped), "step_and_reset must give step's timestep")

    def follow(stepped: Any, started: Any) -> Next[Any]:
        ended = stepped[1].terminated | stepped[1].truncated
        state, timestep = jax.tree.map(lambda a, b: jnp.where(ended, a, b), started, stepped)
        return Next(state, timestep.observation, timestep.action_mask)

    wanted = jax.vmap(follow)((state, stepped), starts)
    for name in ("observation", "action_mask"):
        law = f"step_and_reset must give reset's {name} where the episode ended, else step's"
        _require(_close(getattr(following, name), getattr(wanted, name)), law)
    # What has no meaning in a state may differ. What is seen from there on may not.
    action = jnp.argmax(wanted.action_mask, axis=-1).astype(jnp.int32)
    one, other = (step(keys, each.state, action)[1] for each in (following, wanted))
    _require(
        _close(one, other), "step_and_reset must give a state that plays on as reset's or step's"
    )


def _check_keys(
    keys: Key[Array, " batch"],
    play: _Play,
    starts: ArrayTree,
    step: Callable[..., Any],
    deterministic: bool,
) -> None:
    matters = _varies(starts)
    states, actions = play.some()
    for i in range(0, _BATCH, _BATCH // 8):
        same = jax.tree.map(lambda x, i=i: jnp.broadcast_to(x[i], x.shape), (states, actions))
        matters = matters or _varies(step(keys, *same))
    if deterministic:
        _require(not matters, "key must have no effect, since deterministic=True was declared")
    else:
        _require(matters, "key is not used (pass deterministic=True if nothing is random)")


def _varies(tree: ArrayTree) -> bool:
    return any(bool((x != x[:1]).any()) for x in jax.tree.leaves(tree))


def _check_forbidden_actions(
    keys: Key[Array, " batch"], play: _Play, step: Callable[..., Any]
) -> None:
    mask = play.before.action_mask.reshape(-1, play.before.action_mask.shape[-1])
    state = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), play.state)
    partly = np.flatnonzero(~mask.all(axis=-1))
    if len(partly) == 0:
        return
    rows = partly[np.linspace(0, len(partly) - 1, _BATCH).astype(int)]
    # Not always the first that is forbidden: another one in each row.
    rank = jnp.arange(_BATCH)[:, None] + jnp.arange(mask.shape[-1])
    action = jnp.argmax(jnp.where(mask[rows], -1, rank % mask.shape[-1]), axis=-1)
    states = jax.tree.map(lambda x: x[rows], state)
    _, after = step(keys, states, action.astype(jnp.int32))
    _require(after.action_mask.any(axis=-1).all(), "action_mask is all False after a forbidden one")
    _require(jnp.isfinite(after.reward).all(), "reward must be finite after a forbidden action")
    _require(_finite(after.observation), "observation must be finite after a forbidden action")
