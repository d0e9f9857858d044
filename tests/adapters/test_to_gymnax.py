"""An environment as one of gymnax's, stepped and reset by gymnax's own base class."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

gymnax = pytest.importorskip("gymnax", reason="pip install 'ppo-mask[gymnax]'")

from gymnax.environments import spaces  # noqa: E402
from gymnax.wrappers import purerl  # noqa: E402

from corridor import Corridor  # noqa: E402
from environments import Scripted  # noqa: E402
from ppo_mask.adapters.to_gymnax import ToGymnax  # noqa: E402
from ppo_mask.envs.probes import MaskedDoors  # noqa: E402

CONTINUE, TERMINATE, TRUNCATE, BOTH = range(4)


def rollout(env, params, key, num_steps):
    """Random allowed actions, by the base class's own step and reset; what was before and after."""

    def step(carry, key):
        observation, state = carry
        action_key, step_key = jax.random.split(key)
        mask = env.action_mask(state)
        action = jax.random.categorical(action_key, jnp.where(mask, 0.0, -jnp.inf))
        after = env.step(step_key, state, action, params)
        return after[:2], (observation, state, mask, action, step_key, after)

    reset_key, key = jax.random.split(key)
    start = env.reset(reset_key, params)
    return jax.lax.scan(step, start, jax.random.split(key, num_steps))[1]


def test_jitted_rollout_equals_the_environment():
    inner = Corridor()
    env = ToGymnax(inner)
    params = env.default_params
    play = jax.jit(jax.vmap(lambda key: rollout(env, params, key, 200)))
    keys = jax.random.split(jax.random.key(0), 4)
    observation, state, mask, action, key, after = play(keys)
    next_observation, next_state, reward, terminated, truncated, info = after

    # The base class splits its key: the first half steps, the second resets.
    halves = jax.vmap(jax.vmap(jax.random.split))(key)
    over_all = lambda f: jax.jit(jax.vmap(jax.vmap(f)))  # noqa: E731
    stepped, wanted = over_all(inner.step)(halves[..., 0], state.env_state, action)
    begun, first = over_all(inner.reset)(halves[..., 1])
    np.testing.assert_array_equal(reward, wanted.reward)
    np.testing.assert_array_equal(terminated, wanted.terminated)
    assert not truncated.any()
    np.testing.assert_array_equal(info["final_observation"], wanted.observation)
    np.testing.assert_array_equal(info["position"], wanted.info["position"])
    ended = np.asarray(terminated)
    assert ended.sum() >= 8
    np.testing.assert_array_equal(
        next_observation, np.where(ended[..., None], first.observation, wanted.observation)
    )
    np.testing.assert_array_equal(next_state.env_state, np.where(ended, begun, stepped))
    np.testing.assert_array_equal(
        env.action_mask(next_state),
        np.where(ended[..., None], first.action_mask, wanted.action_mask),
    )
    assert mask.dtype == bool
    # The next observation is the one that the next action is taken in.
    np.testing.assert_array_equal(observation[:, 1:], next_observation[:, :-1])
    np.testing.assert_array_equal(next_state.time == 0, ended)


def test_raw_keys_are_as_good_as_typed_ones():
    env, shown = ToGymnax(Corridor()), []
    for make_key in (jax.random.key, jax.random.PRNGKey):
        observation, state = env.reset(make_key(1))
        shown.append((observation, env.step(make_key(2), state, 1)))
    jax.tree.map(np.testing.assert_array_equal, *shown)


@pytest.mark.parametrize("action", range(4))
def test_both_ends_differ_and_reset(action):
    terminated, truncated = action in (TERMINATE, BOTH), action in (TRUNCATE, BOTH)
    env = ToGymnax(Scripted())
    _, state = env.reset(jax.random.key(0))
    observation, after, reward, ended, cut, info = env.step(jax.random.key(1), state, action)
    assert (float(reward), bool(ended), bool(cut)) == (1.0, terminated, truncated)
    assert float(info["final_observation"][0]) == 1.0
    begins = terminated or truncated
    assert (float(observation[0]), int(after.time)) == ((0.0, 0) if begins else (1.0, 1))
    assert env.action_mask(after).tolist() == [True, False, False, False]
    params = env.default_params
    _, after, *_ = env.step_env(jax.random.key(1), state, action, params)
    assert bool(env.is_terminated(after, params)) == terminated
    assert float(env.discount(after, params)) == float(not terminated)
    assert env.action_mask(after).all() == begins


def test_gymnax_limit_truncates():
    env = ToGymnax(Scripted())
    params = env.default_params.replace(max_steps_in_episode=3)
    _, state = env.reset(jax.random.key(0), params)
    flags = []
    for _ in range(6):
        observation, state, _, ended, cut, info = env.step(
            jax.random.key(1), state, CONTINUE, params
        )
        flags.append(
            (bool(ended), bool(cut), float(observation[0]), float(info["final_observation"][0]))
        )
    assert flags == [(False, False, 1, 1), (False, False, 2, 2), (False, True, 0, 3)] * 2


def test_gymnax_spaces_and_wrappers_work():
    env = ToGymnax(Corridor(6))
    assert (env.name, env.num_actions) == ("Corridor", 3)
    assert ToGymnax(Corridor(), name="corridor").name == "corridor"
    params = env.default_params
    space = env.observation_space(params)
    assert isinstance(space, spaces.Box)
    assert (space.shape, space.dtype) == ((6,), np.float32)
    assert env.action_space(params).n == 3
    logged = purerl.LogWrapper(env)
    _, state = logged.reset(jax.random.key(0), params)
    returned = None
    for i in range(60):
        _, state, _, ended, _, info = logged.step(jax.random.key(i), state, 2, params)
        if ended:
            returned = float(info["returned_episode_returns"])
            break
    assert returned is not None
    assert returned == pytest.approx(1.0 - 0.01 * i, abs=1e-5)
    assert issubclass(type(params), gymnax.EnvParams)


def test_several_choices_have_no_space_in_gymnax():
    with pytest.raises(ValueError, match="no space for 4 x 6 x 6 actions"):
        ToGymnax(MaskedDoors())
