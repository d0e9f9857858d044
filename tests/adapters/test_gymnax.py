"""gymnax's environments as ours: equal to their own steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from playing import assert_equal, played, replayed
from ppo_mask.adapters.gymnax import GymnaxEnv
from ppo_mask.envs import MultiTask, check_env

gymnax = pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")


# Of these, only the lake's steps are random: `replayed` gives gymnax the key that it splits itself.
@pytest.mark.parametrize("name", ["CartPole-v1", "Catch-bsuite", "FrozenLake-misc"])
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


@pytest.mark.slow
def test_protocol_is_kept():
    env, params = gymnax.make("CartPole-v1")
    check_env(GymnaxEnv(env, params.replace(max_steps_in_episode=30)), num_steps=60)


def test_time_limit_truncates_and_fall_terminates():
    env, params = gymnax.make("CartPole-v1")
    limit = 5
    short = GymnaxEnv(env, params.replace(max_steps_in_episode=limit))
    step, key = jax.jit(lambda *args: short.step(*args)), jax.random.key(0)
    state, _ = jax.jit(lambda key: short.reset(key))(key)
    for number in range(1, limit + 1):
        state, timestep = step(key, state, jnp.int32(number % 2))
        assert not timestep.terminated
        assert timestep.truncated == (number == limit)
    # Fallen in the very step of the limit: what comes after is worth nothing.
    fallen = state.replace(theta=jnp.float32(1.0), time=jnp.full_like(state.time, limit - 1))
    _, timestep = step(key, fallen, jnp.int32(0))
    assert timestep.terminated
    assert not timestep.truncated


def test_array_parameters_may_differ_between_tasks():
    env, params = gymnax.make("CartPole-v1")
    tasks = [GymnaxEnv(env, params.replace(length=jnp.float32(x))) for x in (0.5, 5.0)]
    both, key, push = MultiTask(tasks), jax.random.key(0), jnp.int32(1)

    @jax.jit
    def steps(key):
        _, inner = both.reset(key)[0]
        pairs = [
            (both.step(key, (jnp.int32(number), inner), push), task.step(key, inner, push))
            for number, task in enumerate(tasks)
        ]
        return [[timestep.observation for _, timestep in pair] for pair in pairs]

    (short, wanted_short), (long, wanted_long) = steps(key)
    assert_equal([short, long], [wanted_short, wanted_long])
    assert (short != long).any()
    state = jax.eval_shape(both.reset, key)[0]
    assert str(jax.make_jaxpr(both.step)(key, state, jnp.int32(0))).count("cond[") == 0


def test_continuous_actions_and_unknown_names_are_refused():
    with pytest.raises(ValueError, match=r"Pendulum-v1 of gymnax has actions of Box.* Discrete"):
        GymnaxEnv("Pendulum-v1")
    with pytest.raises(ValueError, match="Pong-v9 is not in registered"):
        GymnaxEnv("Pong-v9")


@pytest.mark.parametrize(("name", "draws"), [("Breakout-MinAtar", True), ("DeepSea-bsuite", False)])
def test_states_are_drawn_where_gymnax_can(name, draws):
    env = GymnaxEnv(name)
    picture = env.draw(*jax.jit(env.reset)(jax.random.key(0)))
    assert (picture is not None) == draws
    if draws:
        assert len(np.unique(picture.reshape(-1, 3), axis=0)) > 3
