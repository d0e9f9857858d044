"""Tests whether an environment obeys the laws of the protocol."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ppo_mask.envs._env import AbstractEnv, TimeStep, imagines, masks_parts_in_turn
from ppo_mask.envs._host import host_env_in
from ppo_mask.envs._shapes import Env, require, require_env, shapes_of
from ppo_mask.envs.actions import Actions
from ppo_mask.errors import ProtocolError
from ppo_mask.jax_tools._programs import split_key
from ppo_mask.jax_tools._trees import changes

# The number of environments to play in, and of states, each with an action, to test the laws on.
# Compiling takes most of the time, and a batch of another size would be compiled again.
_NUM_ENVS = 32


def check_env(
    env: Env,
    *,
    key: Key[Array, ""] | None = None,
    num_steps: int = 200,
    deterministic: bool = False,
) -> None:
    """Tests every law of :class:`ppo_mask.envs.AbstractEnv` by playing random allowed actions.

    Args:
        env: the environment.
        key: the random key of the test; None for a fixed key.
        num_steps: steps to play in each of 32 environments; choose enough that some episodes end.
        deterministic: whether the environment claims to ignore its keys.

    Raises:
        ProtocolError: a law is broken.
        RunError: ``env`` is not an environment.

    Example:
        >>> import ppo_mask as pm
        >>> pm.check_env(pm.envs.probes.MatchObservation(), num_steps=4)
        >>> try:
        ...     pm.check_env(pm.envs.probes.ConstantValue(), num_steps=4, deterministic=True)
        ... except pm.errors.ProtocolError as error:
        ...     print(error)
        key must have no effect, since deterministic=True was declared
    """
    require_env(env)
    outside = "check_env is for environments in JAX; one in Python has its own library's checks"
    require(host_env_in(env) is None, outside)
    key = jax.random.key(0) if key is None else key
    keys = jax.random.split(key, 2 + _NUM_ENVS)
    # Not jit(env.reset), because a method of an environment that holds arrays cannot be hashed.
    alone = jax.jit(lambda key: env.reset(key)), jax.jit(lambda *args: env.step(*args))
    shapes_of(env)
    state, first = alone[0](keys[0])
    require(not first.terminated, "reset must not give terminated")
    require(not first.truncated, "reset must not give truncated")
    actions = Actions.of(env.num_actions)
    _check_purity("reset", env.reset, keys[0])
    _check_purity("step", env.step, keys[0], state, jnp.zeros(actions.shape, jnp.int32))
    reset, step = jax.jit(jax.vmap(env.reset)), jax.jit(jax.vmap(env.step))
    sample = _sampler(env, actions)
    play = _play(reset, step, sample, keys[1], num_steps)
    _check_masks(play, actions)
    if masks_parts_in_turn(env):
        _check_paths(play, actions)
    keys = keys[2:]
    starts, steps = jax.device_get((reset(keys), step(keys, *play.some())))
    _check_batching(alone, keys, play, starts, steps)
    _check_keys(keys, play, starts, step, deterministic)
    _check_forbidden_actions(keys, play, step, actions)
    if imagines(env):
        _check_imagined(env, keys, play)
    if type(env).step_and_reset is not AbstractEnv.step_and_reset:
        _check_step_and_reset(env, step, sample, keys, play, starts)


@dataclass(frozen=True)
class _Play:
    """Random play as NumPy arrays [steps, envs, …].

    ``state`` is the state before the action; ``allowed`` the masks along the path of its parts.
    """

    state: Any
    before: TimeStep
    action: Any
    allowed: Any
    after: TimeStep

    def some(self) -> tuple[Any, Any]:
        """Picks states, evenly spaced over the play, each with the action taken there."""
        return self.evenly((self.state, self.action))

    def evenly(self, tree: Any) -> Any:
        """Picks entries of arrays [steps, envs, …], evenly spaced over the play."""
        rows = np.linspace(0, self.after.reward.size - 1, _NUM_ENVS).astype(int)
        return _flat_rows(tree, rows)


def _flat_rows(tree: Any, rows: np.ndarray) -> Any:
    """Merges the first two axes of arrays [steps, envs, …], and picks the entries ``rows``."""
    return jax.tree.map(lambda x: x.reshape(len(x) * x.shape[1], *x.shape[2:])[rows], tree)


def _play(
    reset: Callable[..., Any],
    step: Callable[..., Any],
    sample: Callable[..., Any],
    key: Key[Array, ""],
    num_steps: int,
) -> _Play:
    reset_key, key = jax.random.split(key)
    state, before = reset(jax.random.split(reset_key, _NUM_ENVS))
    steps: list[Any] = []
    for step_key in jax.random.split(key, num_steps):
        action_keys, step_keys, reset_keys = split_key(step_key, 3, _NUM_ENVS)
        action, allowed = sample(action_keys, state, before.action_mask)
        new_state, after = step(step_keys, state, action)
        steps.append((state, before, action, allowed, after))
        state, before = _where_ended(after, reset(reset_keys), (new_state, after))
    return _Play(*jax.tree.map(lambda *x: np.stack(x), *jax.device_get(steps)))


def _sampler(env: AbstractEnv[Any], actions: Actions) -> Callable[..., Any]:
    """Returns a function of keys, states and masks that samples actions, and their paths' masks."""
    if not masks_parts_in_turn(env):
        return lambda keys, states, mask: (_sample(keys, mask, actions), mask)

    def sample(key: Any, state: Any, mask: Any) -> Any:
        keys = jax.random.split(key, len(actions.sizes))
        return actions.choose_in_turn(
            partial(env.part_mask, state),
            lambda k, prefix, part: Actions.of(actions.sizes[k]).sample(keys[k], part),
        )

    return jax.jit(jax.vmap(sample))


@partial(jax.jit, static_argnames="actions")
def _sample(keys: Any, mask: Any, actions: Actions) -> Any:
    """Samples actions that the masks allow; in a part without any, the first action."""
    return jax.vmap(actions.sample)(keys, mask)


@jax.jit
def _where_ended(timestep: TimeStep, fresh: Any, old: Any) -> Any:
    def choose(ended: Any, fresh: Any, old: Any) -> Any:
        return jax.tree.map(lambda a, b: jnp.where(ended, a, b), fresh, old)

    return jax.vmap(choose)(timestep.terminated | timestep.truncated, fresh, old)


def _check_masks(play: _Play, actions: Actions) -> None:
    for mask in map(jnp.asarray, (play.before.action_mask, play.after.action_mask)):
        where = f" in one of the parts of {actions}" * actions.has_parts
        require(actions.any_allowed(mask).all(), f"action_mask must never be all False{where}")
    everything = play.after.action_mask.all(axis=-1)
    law = "action_mask must be all True where the episode terminated"
    require((everything | ~play.after.terminated).all(), law)
    require(np.isfinite(play.after.reward).all(), "reward must be finite")
    require(_finite(play.before.observation), "observation must be finite (reset)")
    require(_finite(play.after.observation), "observation must be finite (step)")


def _check_paths(play: _Play, actions: Actions) -> None:
    allowed, mask = jnp.asarray(play.allowed), play.before.action_mask
    if not actions.any_allowed(allowed).all():
        path = np.asarray(actions.path_to_empty(allowed, jnp.asarray(play.action)))
        raise ProtocolError(f"part_mask is all False{actions.describe_path(path)}")
    first = actions.sizes[0]
    law = "part_mask must give for part 0 what action_mask has for it"
    require((mask[..., :first] == allowed[..., :first]).all(), law)
    law = "action_mask must be all True for the parts after part 0, since part_mask has their masks"
    require(mask[..., first:].all(), law)


def _finite(tree: Any) -> bool:
    floats = [x for x in jax.tree.leaves(tree) if jnp.issubdtype(x.dtype, jnp.inexact)]
    return all(np.isfinite(x).all() for x in floats)


def _close(one: Any, other: Any) -> bool:
    """Whether two trees are equal up to float rounding."""

    def close(x: Any, y: Any) -> bool:
        if jnp.issubdtype(x.dtype, jnp.inexact):
            return np.allclose(x, y, rtol=1e-4, atol=1e-5, equal_nan=True)
        return np.array_equal(x, y)

    return jax.tree.all(jax.tree.map(close, one, other))


def _check_purity(name: str, function: Callable[..., Any], *args: Any) -> None:
    # Comparing traces is cheap, and detects impure Python. Equal programs may print differently, so
    # the results decide.
    def program() -> str:
        # A new function each time, because JAX caches traces by function.
        traced = jax.make_jaxpr(lambda *args: function(*args))(*args)
        return re.sub("0x[0-9a-f]+", "", str(traced))

    if program() != program():
        results = [jax.jit(lambda *args: function(*args))(*args) for _ in range(2)]
        require(_close(*results), f"{name} must be pure: two equal calls gave two results")


def _check_batching(
    alone: tuple[Callable[..., Any], Callable[..., Any]],
    keys: Key[Array, " rows"],
    play: _Play,
    starts: Any,
    steps: Any,
) -> None:
    reset, step = alone
    states, actions = play.some()
    for i in range(0, _NUM_ENVS, 4):
        row = partial(jax.tree.map, lambda x, i=i: x[i])
        law = "must give the same batched by jax.vmap as alone"
        require(_close(row(starts), reset(keys[i])), f"reset {law}")
        require(_close(row(steps), step(keys[i], row(states), actions[i])), f"step {law}")


def _check_step_and_reset(
    env: AbstractEnv[Any],
    step: Callable[..., Any],
    sample: Callable[..., Any],
    keys: Key[Array, " rows"],
    play: _Play,
    starts: tuple[Any, TimeStep],
) -> None:
    # Half of the steps end an episode, as far as there are any.
    continues = ~(play.after.terminated | play.after.truncated).reshape(-1)
    rows = np.argsort(continues, stable=True)
    rows = np.append(rows[: _NUM_ENVS // 2], rows[-_NUM_ENVS // 2 :])
    states, actions = _flat_rows((play.state, play.action), rows)
    state, stepped = step(keys, states, actions)
    final, following = jax.jit(jax.vmap(env.step_and_reset))(keys, keys, states, actions)
    require(_close(final, stepped), "step_and_reset must give step's timestep")

    state, wanted = _where_ended(stepped, starts, (state, stepped))
    for name in ("observation", "action_mask"):
        law = f"step_and_reset must give reset's {name} where the episode ended, else step's"
        require(_close(getattr(following, name), getattr(wanted, name)), law)
    # States may differ in unused parts, but the next step must give equal timesteps.
    action, _ = sample(keys, state, wanted.action_mask)
    one, other = (step(keys, each, action)[1] for each in (following.state, state))
    law = "step_and_reset must give a state that plays on as reset's or step's"
    require(_close(one, other), law)


def _check_imagined(env: AbstractEnv[Any], keys: Key[Array, " rows"], play: _Play) -> None:
    state, before = play.evenly((play.state, play.before))
    drawn: Any = jax.jit(jax.vmap(env.imagine))(keys, state)
    for name, was, is_ in sorted(changes(state, drawn.state)):
        raise ProtocolError(f"state{name} is {was}, but {is_} from imagine")
    for name in ("observation", "action_mask"):
        law = f"imagine must give a state with the same {name}"
        require(_close(getattr(before, name), getattr(drawn, name)), law)


def _check_keys(
    keys: Key[Array, " rows"],
    play: _Play,
    starts: Any,
    step: Callable[..., Any],
    deterministic: bool,
) -> None:
    matters = _varies(starts)
    states, actions = play.some()
    for i in range(0, _NUM_ENVS, 4):
        same = jax.tree.map(lambda x, i=i: np.broadcast_to(x[i], x.shape), (states, actions))
        matters = matters or _varies(jax.device_get(step(keys, *same)))
    if deterministic:
        require(not matters, "key must have no effect, since deterministic=True was declared")
    else:
        require(matters, "key is not used (pass deterministic=True if nothing is random)")


def _varies(tree: Any) -> bool:
    return any(bool((x != x[:1]).any()) for x in jax.tree.leaves(tree))


def _check_forbidden_actions(
    keys: Key[Array, " rows"], play: _Play, step: Callable[..., Any], actions: Actions
) -> None:
    """Plays a forbidden action in each of several states that do not allow all actions."""
    mask = play.allowed.reshape(-1, play.allowed.shape[-1])
    partly = np.flatnonzero(~mask.all(axis=-1))
    if len(partly) == 0:
        return
    rows = partly[np.linspace(0, len(partly) - 1, _NUM_ENVS).astype(int)]
    action = _sample(keys, ~mask[rows], actions)
    _, after = step(keys, _flat_rows(play.state, rows), action)
    law = "action_mask is all False after a forbidden action"
    require(actions.any_allowed(after.action_mask).all(), law)
    require(np.isfinite(after.reward).all(), "reward must be finite after a forbidden action")
    require(_finite(after.observation), "observation must be finite after a forbidden action")
