"""Random play of an adapter, to compare with the library's own; and a short training."""

import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.envs.actions import mask_length
from ppo_mask.networks import MLPActorCritic, masked_distribution
from ppo_mask.ppo import PPOConfig
from ppo_mask.training import Trainer, evaluate


def keys_of(key):
    """What a batched step and the resets after it are given."""
    return jax.random.split(key, 2)


def played(env, num_envs=8, num_steps=80, seed=0):
    """Random allowed actions, and what came of them.

    Returns:
        The keys of the resets that began it all ``[envs]``; for each step its key and action and
        the reset's key ``[steps, envs]``; and the first timesteps ``[envs]``, each step's own
        ``[steps, envs]`` and those that the next action was taken in ``[steps, envs]``, which
        differ where an episode ended.
    """

    def step(carry, key):
        state, before = carry
        action_key, key = jax.random.split(key)
        step_key, reset_key = keys_of(key)
        logits = jnp.zeros(mask_length(env.num_actions))
        distribution = masked_distribution(logits, before.action_mask, env.num_actions)
        action = distribution.sample(action_key)
        state, after = env.step(step_key, state, action)
        ended = after.terminated | after.truncated
        carry = jax.tree.map(
            lambda fresh, old: jnp.where(ended, fresh, old), env.reset(reset_key), (state, after)
        )
        return carry, (key, action, after, carry[1])

    def play(key):
        reset_key, steps_key = jax.random.split(key)
        start = env.reset(reset_key)
        rest = jax.lax.scan(step, start, jax.random.split(steps_key, num_steps))[1]
        return reset_key, start[1], rest

    many = jax.jit(jax.vmap(play, out_axes=(0, 0, 1)))
    resets, first, (keys, actions, steps, following) = many(
        jax.random.split(jax.random.key(seed), num_envs)
    )
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


def learned(env, num_updates, seed=0, evaluations=200, curriculum=None, **config):
    """What an MLP's policy is worth after some updates, drawing its actions."""
    config = PPOConfig(num_envs=32, **{"num_steps": 32, "learning_rate": 1e-3, **config})
    model_key, key, evaluation_key = jax.random.split(jax.random.key(seed), 3)
    size = env.reset(key)[1].observation.size
    model = MLPActorCritic(size, env.num_actions, 64, 2, layer_norm=True, key=model_key)
    trainer = Trainer(env, config, curriculum=curriculum)
    state = trainer.train(trainer.init(model, key), num_updates * config.batch_size)
    return evaluate(state.model, env, evaluation_key, evaluations, greedy=False)
