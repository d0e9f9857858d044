"""Random play of an adapter, to compare with the library's own."""

import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs import VectorEnv
from ppo_mask.envs.actions import Actions
from ppo_mask.networks import masked_distribution


def keys_of(key):
    """What a batched step and the resets after it are given."""
    return jax.random.split(key, 2)


def played(env, num_envs=8, num_steps=80):
    """Random allowed actions, and what came of them.

    Returns:
        The keys of the resets that began it all ``[envs]``; for each step its key and action and
        the reset's key ``[steps, envs]``; and the first timesteps ``[envs]``, each step's own
        ``[steps, envs]`` and those that the next action was taken in ``[steps, envs]``, which
        differ where an episode ended.
    """

    def step(carry, key):
        # So that a reset is compiled once.
        state, before, ended, reset_key = carry
        state, before = jax.tree.map(
            lambda fresh, old: jnp.where(ended, fresh, old), env.reset(reset_key), (state, before)
        )
        action_key, key = jax.random.split(key)
        step_key, reset_key = keys_of(key)
        logits = jnp.zeros(Actions.of(env.num_actions).length)
        distribution = masked_distribution(logits, before.action_mask, env.num_actions)
        action = distribution.sample(action_key)
        state, after = env.step(step_key, state, action)
        ended = after.terminated | after.truncated
        return (state, after, ended, reset_key), (before, key, action, after)

    def play(key):
        reset_key, steps_key = jax.random.split(key)
        nothing = jax.tree.map(
            lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(env.reset, reset_key)
        )
        keys = jax.random.split(steps_key, num_steps + 1)
        _, seen = jax.lax.scan(step, (*nothing, jnp.array(True), reset_key), keys)
        return reset_key, seen

    many = jax.jit(jax.vmap(play, out_axes=(0, 1)))
    resets, (before, keys, *rest) = many(jax.random.split(jax.random.key(0), num_envs))
    before, actions, steps = jax.device_get((before, *rest))
    at = lambda rows, tree: jax.tree.map(lambda x: x[rows], tree)  # noqa: E731
    first, following = at(0, before), at(slice(1, None), before)
    keys, actions, steps = at(slice(-1), (keys, actions, steps))
    return resets, keys, actions, (first, steps, following)


def replayed(reset, step, resets, keys, actions):
    """The same actions by other functions of the same keys, batched in the same way.

    Args:
        reset: key to state and what is seen.
        step: key of step and reset (see ``keys_of``), state and action to the state in which the
            next action is taken, and what is seen.
        resets: from ``played``, as are ``keys`` and ``actions``.

    Returns:
        What is seen: first ``[envs]`` and of each step ``[steps, envs]``.
    """

    def one(carry, given):
        return step(given[0], carry, given[1])

    def play(reset_key, keys, actions):
        state, first = reset(reset_key)
        return first, jax.lax.scan(one, state, (keys, actions))[1]

    return jax.jit(jax.vmap(play, (0, 1, 1), (0, 1)))(resets, keys, actions)


def assert_equal(ours, theirs):
    """Trees of equal leaves; numbers may be rounded otherwise in another program."""
    ours, theirs = jax.tree.leaves(ours), jax.tree.leaves(theirs)
    assert len(ours) == len(theirs)
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(
            np.asarray(one), np.asarray(other).astype(one.dtype), rtol=1e-5, atol=1e-5
        )


def assert_same_play(ours, theirs):
    """What ``played`` saw, and what ``replayed`` saw with timesteps of observation and reward."""
    first, steps, following = ours
    begun, (seen, begun_again) = theirs
    assert_equal(first.observation, begun.observation)
    assert_equal(steps.observation, seen.observation)
    assert_equal(following.observation, begun_again.observation)
    assert_equal(steps.reward, seen.reward)


def draw_allowed(random, masks, num_actions):
    """An allowed action for each row of masks; if MultiDiscrete, one for each part."""
    sizes = [num_actions] if isinstance(num_actions, int) else num_actions
    parts = np.split(np.asarray(masks), np.cumsum(sizes)[:-1], axis=1)
    actions = [[random.choice(np.flatnonzero(row)) for row in part] for part in parts]
    actions = np.array(actions, np.int32).T
    return actions[:, 0] if isinstance(num_actions, int) else actions


def played_on_host(env, steps=80):
    """The timesteps of three environments on the host, in which allowed actions are drawn."""
    vector, random, key = VectorEnv(env, 3), np.random.default_rng(1), jax.random.key(0)
    reset, step = map(jax.jit, (vector.reset, vector.step))
    state, timestep = reset(key)
    shown = [jax.device_get(timestep)]
    for _ in range(steps):
        actions = draw_allowed(random, shown[-1].action_mask, env.num_actions)
        state, timestep = step(key, state, jnp.asarray(actions))
        shown.append(jax.device_get(timestep))
    return shown


def play_without_jax(env, steps):
    """Steps three environments of Gymnasium's; what they raise comes out of it."""
    host, random, parts = env._host, np.random.default_rng(1), np.size(env.num_actions)
    numbers, actions = np.zeros((3, 3), np.int32), np.zeros((3, parts), np.int32)
    for _ in range(1 + steps):
        answer = host.step(np.hstack([numbers, actions, np.zeros((3, 1), int), [[0], [1], [2]]]))
        if (failure := host.take_failure()) is not None:
            raise failure
        numbers = answer["row"][:, :3]
        actions = draw_allowed(random, answer["mask"], env.num_actions).reshape(3, parts)
