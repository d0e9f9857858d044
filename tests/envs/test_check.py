"""check_env finds each broken law, and finds none in environments that keep them."""

import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import ppo_mask as pm
from environments import Scripted
from ppo_mask.envs import Next, probes
from ppo_mask.errors import ProtocolError


class Walk(pm.AbstractEnv):
    """A lawful walk of six steps, with an empty array in what is shown, until one law is broken."""

    num_actions: int = eqx.field(static=True, default=3)

    def reset(self, key):
        x = jax.random.uniform(key)
        state = (x, jnp.int32(0))
        return state, self.show(state, 0.0)

    def step(self, key, state, action):
        x, steps = state
        state = (x + action + jax.random.uniform(key), steps + 1)
        return state, self.show(state, 1.0)

    def show(self, state, reward):
        x, steps = state
        over = steps >= 6
        return pm.TimeStep(
            observation=(x[None], jnp.zeros((0, 2))),
            action_mask=jnp.array([True, True, False]) | over,
            reward=jnp.float32(reward),
            terminated=over,
            truncated=jnp.array(False),
            info={"x": x},
        )


class Walks(Walk):
    """Two walks at once, whose masks follow each other."""

    num_actions: tuple[int, ...] = eqx.field(static=True, default=(3, 2))

    def step(self, key, state, action):
        return super().step(key, state, action[0] + action[1])

    def show(self, state, reward):
        mask = jnp.array([True, True, False, False, True]) | (state[1] >= 6)
        return dataclasses.replace(super().show(state, reward), action_mask=mask)


class SelfResetting(Walk):
    """The walk, with a step that resets by itself."""

    def step_and_reset(self, step_key, reset_key, state, action):
        state, final = self.step(step_key, state, action)
        start, first = self.reset(reset_key)
        following = Next(state, final.observation, final.action_mask)
        fresh = Next(start, first.observation, first.action_mask)
        ended = final.terminated | final.truncated
        return final, jax.tree.map(lambda new, old: jnp.where(ended, new, old), fresh, following)


@pytest.mark.parametrize(
    ("env", "deterministic"),
    [(probes.MaskedDoors(), False), (SelfResetting(), False), (Scripted(3), True)],
    ids=lambda env: type(env).__name__,
)
def test_lawful_environments_pass(env, deterministic):
    pm.check_env(env, num_steps=30, deterministic=deterministic)


def broken(base: Any = Walk, num_actions=None, **how):
    """An environment with methods that change what those of its base give.

    A change gets the result and the arguments, and gives what is returned instead.
    """
    members = {}
    for name, change in how.items():

        def method(self, *args, name=name, change=change):
            return change(getattr(base, name)(self, *args), *args)

        members[name] = method
    return type(base)("Broken", (base,), members)(
        base().num_actions if num_actions is None else num_actions
    )


def but(**fields):
    """What a timestep is changed to."""
    return lambda timestep, *_: dataclasses.replace(timestep, **fields)


def and_shows(**fields):
    return lambda result, *_: (result[0], dataclasses.replace(result[1], **fields))


calls = []


def count(result, *_):
    """Another state at each call."""
    calls.append(1)
    (x, steps), timestep = result
    return (x + len(calls), steps), dataclasses.replace(timestep, info={"x": x + len(calls)})


class KeyUnused(Walk):
    def reset(self, key):
        return super().reset(jax.random.key(3))

    def step(self, key, state, action):
        return super().step(jax.random.key(3), state, action)


class KeyInState(Walk):
    def reset(self, key):
        state, timestep = super().reset(key)
        return (*state, key), timestep

    def step(self, key, state, action):
        new, timestep = super().step(key, state[:2], action)
        return (*new, state[2]), timestep


class OtherWhenBatched(Walk):
    def step(self, key, state, action):
        batched = "Batch" in type(action).__name__ or "Vmap" in type(action).__name__
        return super().step(key, (state[0] + batched, state[1]), action)


class ResetsWithOtherKey(SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        return super().step_and_reset(step_key, jax.random.split(reset_key)[0], state, action)


class NeverResets(SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        state, final = self.step(step_key, state, action)
        return final, Next(state, final.observation, final.action_mask)


class StepsOtherwise(SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        return super().step_and_reset(step_key, reset_key, state, 1 - action)


class KeepsOldState(SelfResetting):
    def step_and_reset(self, step_key, reset_key, state, action):
        final, following = super().step_and_reset(step_key, reset_key, state, action)
        return final, Next(state, following.observation, following.action_mask)


def nan_where(condition, timestep):
    return dataclasses.replace(timestep, reward=jnp.where(condition, jnp.nan, timestep.reward))


BROKEN = [
    (broken(num_actions=0), "num_actions is 0, not a positive int"),
    (broken(num_actions=[3, 2]), r"num_actions is \[3, 2\], not a positive int or a tuple of some"),
    (broken(num_actions=(5, 0)), r"num_actions is \(5, 0\), not a positive int or a tuple of some"),
    (broken(Walks, num_actions=(3, 4)), r"mask is bool\[5\], not bool\[7\]: num_actions is \(3, 4"),
    (
        broken(Walks, show=lambda t, *_: but(action_mask=t.action_mask & (jnp.arange(5) < 3))(t)),
        "must never be all False in one of the parts of 3 x 2 actions",
    ),
    (
        broken(
            Walks,
            step=lambda result, key, state, action: (
                result[0],
                nan_where((action[1] == 0) & (state[1] < 6), result[1]),
            ),
        ),
        "reward must be finite after a forbidden action",
    ),
    (
        broken(show=lambda t, *_: but(truncated=jnp.float32(0))(t)),
        r"TimeStep.truncated is float32\[\], not bool\[\]",
    ),
    (
        broken(step=and_shows(observation=(jnp.zeros(1, jnp.bfloat16), jnp.zeros((0, 2))))),
        r"float32\[1\] from reset but bfloat16\[1\] from step",
    ),
    (
        broken(step=lambda result, *_: ((result[0][0], result[0][1].astype("int16")), result[1])),
        r"state\[1\] is int32\[\] from reset but int16\[\] from step",
    ),
    (
        broken(step=lambda result, *_: (list(result[0]), result[1])),
        "state has another tree structure from reset than from step",
    ),
    (KeyInState(), r"state\[2\] is a random key.* give a library .* jax.random.key_data\(key\)"),
    (broken(reset=and_shows(terminated=jnp.array(True))), "reset must not give terminated"),
    (broken(reset=and_shows(truncated=jnp.array(True))), "reset must not give truncated"),
    (
        broken(show=lambda t, state, _: but(action_mask=t.action_mask & (state[1] != 3))(t)),
        "action_mask must never be all False",
    ),
    (
        broken(show=but(action_mask=jnp.array([True, True, False]))),
        "action_mask must be all True where the episode terminated",
    ),
    (
        broken(show=lambda t, state, _: but(reward=jnp.where(state[1] == 4, jnp.inf, 1.0))(t)),
        "reward must be finite",
    ),
    (
        broken(
            show=lambda t, state, _: but(
                observation=(jnp.where(state[1] == 4, jnp.nan, state[0])[None], jnp.zeros((0, 2)))
            )(t)
        ),
        "observation must be finite",
    ),
    (broken(step=count), "step must be pure"),
    (broken(reset=count), "reset must be pure"),
    (KeyUnused(), "key is not used"),
    (OtherWhenBatched(), "step must give the same batched by jax.vmap as alone"),
    (ResetsWithOtherKey(), "step_and_reset must give reset's observation where the episode"),
    (NeverResets(), "step_and_reset must give reset's observation where the episode"),
    (StepsOtherwise(), "step_and_reset must give step's timestep"),
    (KeepsOldState(), "step_and_reset must give a state that plays on as"),
]


@pytest.mark.parametrize(("env", "message"), BROKEN, ids=range(len(BROKEN)))
def test_each_broken_law_is_found_and_named(env, message):
    with pytest.raises(ProtocolError, match=message) as error:
        pm.check_env(env, num_steps=20)
    assert "\n" not in str(error.value)


def test_a_false_claim_to_be_deterministic_is_found():
    with pytest.raises(ProtocolError, match="key must have no effect"):
        pm.check_env(Walk(), num_steps=20, deterministic=True)
