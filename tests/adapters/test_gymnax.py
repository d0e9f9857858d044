"""gymnax's environments as ours: equal to their own steps, and learned on."""

import jax
import jax.numpy as jnp
import pytest

from playing import assert_equal, keys_of, learned, played, replayed
from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.envs import FlatObservation, MultiTask, check_env

gymnax = pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")

CLASSIC = ["CartPole-v1", "Acrobot-v1", "MountainCar-v0"]


@pytest.mark.parametrize("name", [*CLASSIC, "Catch-bsuite", "FrozenLake-misc"])
def test_step_equals_gymnax(name):
    # A short limit, so that both ways to end are met.
    env, params = gymnax.make(name)
    params = params.replace(max_steps_in_episode=18)
    resets, keys, actions, (first, steps, following) = played(GymnaxEnv(env, params))

    def reset(key):
        observation, state = env.reset(key, params)
        return state, observation

    def step(key, state, action):
        observation, state, *rest, info = env.step(key, state, action, params)
        return state, (observation, *rest, info)

    begun, raw = replayed(reset, step, resets, keys, actions)
    observation, reward, terminated, truncated, info = raw
    assert_equal(first.observation, begun)
    assert_equal(following.observation, observation)
    assert_equal(steps.observation, info["final_observation"])
    assert_equal(steps.reward, reward)
    assert_equal(steps.terminated, terminated)
    assert_equal(steps.truncated, truncated & ~terminated)
    assert (terminated | truncated).any()
    assert_equal(steps.info, {name: info[name] for name in steps.info})
    assert steps.info.keys() == info.keys() - {"terminated", "truncated", "final_observation"}
    assert steps.action_mask.all()


def test_keys_are_split_as_in_gymnax():
    # `replayed` gives gymnax the key that it splits itself.
    key = jax.random.key(3)
    assert (jax.random.split(key)[0] == keys_of(key)[0]).all()


@pytest.mark.parametrize(
    "name", [CLASSIC[0], *(pytest.param(name, marks=pytest.mark.optimized) for name in CLASSIC[1:])]
)
def test_classic_control_keeps_the_protocol(name):
    env, params = gymnax.make(name)
    check_env(GymnaxEnv(env, params.replace(max_steps_in_episode=30)), num_steps=60)


def test_time_limit_truncates_and_fall_terminates():
    name, limit = "CartPole-v1", 5
    env, params = gymnax.make(name)
    short = GymnaxEnv(env, params.replace(max_steps_in_episode=limit))
    step, key = jax.jit(lambda *args: short.step(*args)), jax.random.key(0)
    state, _ = short.reset(key)
    for number in range(1, limit + 1):
        state, timestep = step(key, state, jnp.int32(number % 2))
        assert not timestep.terminated
        assert timestep.truncated == (number == limit)
    # Fallen in the very step of the limit: what comes after is worth nothing.
    _, timestep = step(key, state.replace(theta=jnp.float32(1.0), time=limit - 1), jnp.int32(0))
    assert timestep.terminated
    assert not timestep.truncated


def test_array_parameters_may_differ_between_tasks():
    env, params = gymnax.make("CartPole-v1")
    tasks = [GymnaxEnv(env, params.replace(length=jnp.float32(x))) for x in (0.5, 5.0)]
    both = MultiTask(tasks)
    key = jax.random.key(0)
    state, _ = both.reset(key)
    for task, single in enumerate(tasks):
        _, timestep = both.step(key, (jnp.int32(task), state[1]), jnp.int32(1))
        assert_equal(timestep.observation, single.step(key, state[1], jnp.int32(1))[1].observation)
    assert str(jax.make_jaxpr(both.step)(key, state, jnp.int32(0))).count("cond[") == 0


def test_continuous_actions_and_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1 of gymnax has actions of Box.* Discrete"):
        GymnaxEnv("Pendulum-v1")
    with pytest.raises(ValueError, match="Pong-v9 is not in registered"):
        GymnaxEnv("Pong-v9")


@pytest.mark.optimized
def test_catch_is_learned():
    # Caught: 1, missed: -1. A random player catches about one in five.
    result = learned(
        FlatObservation(GymnaxEnv("Catch-bsuite")), 30, learning_rate=3e-3, ent_coef=0.01
    )
    assert result.mean_return > 0.8


@pytest.mark.optimized
def test_cart_pole_is_learned():
    result = learned(
        GymnaxEnv("CartPole-v1"), 240, num_steps=64, anneal_lr=True, ent_coef=0.0, evaluations=100
    )
    assert result.mean_return >= 450
