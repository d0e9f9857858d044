"""navix's environments as ours: equal to their own steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from playing import assert_equal, assert_same_play, keys_of, played, replayed
from ppo_mask.adapters.navix import NavixEnv
from ppo_mask.envs import check_env

navix = pytest.importorskip("navix", reason="pip install 'ppo-mask[navix]'")


def room(name="Navix-Empty-Random-5x5-v0", max_steps=15, **settings):
    return navix.make(name, max_steps=max_steps, **settings)


GAMES = {"room": room, "obstacles": lambda: room("Navix-Dynamic-Obstacles-5x5-v0")}


@pytest.mark.parametrize("name", ["room", pytest.param("obstacles", marks=pytest.mark.slow)])
def test_step_equals_navix(name):
    game = GAMES[name]()
    resets, keys, actions, ours = played(NavixEnv(game), num_steps=60)

    def reset(key):
        timestep = game.reset(jax.random.key_data(key))
        return timestep, timestep

    def step(key, before, action):
        step_key, reset_key = keys_of(key)
        state = before.state.replace(key=jax.random.key_data(step_key))
        after = game.step(before.replace(state=state), action)
        fresh, _ = reset(reset_key)
        following = jax.tree.map(
            lambda new, old: jnp.where(after.is_done(), new, old), fresh, after
        )
        return following, (after, following)

    theirs = replayed(reset, step, resets, keys, actions)
    assert_same_play(ours, theirs)
    (_, steps, _), (_, (raw, _)) = ours, theirs
    assert_equal(steps.info, raw.info)
    assert_equal(steps.terminated, np.asarray(raw.step_type) == 2)
    assert_equal(steps.truncated, np.asarray(raw.step_type) == 1)
    assert steps.terminated.any()
    assert steps.truncated.any()
    assert steps.action_mask.all()


@pytest.mark.slow
def test_protocol_is_kept():
    check_env(NavixEnv(room()), num_steps=40)


def test_state_holds_no_picture_of_the_empty_grid():
    env = NavixEnv(room())
    state = jax.eval_shape(env.reset, jax.random.key(0))[0]
    theirs = jax.eval_shape(env.environment.reset, jax.random.PRNGKey(0))
    ours, whole = (sum(x.size for x in jax.tree.leaves(each)) for each in (state, theirs))
    assert ours < whole / 10


def test_step_does_not_change_its_argument():
    env = NavixEnv(room())

    @jax.eval_shape
    def show():
        key = jax.random.key(0)
        state, _ = env.reset(key)
        before = jax.tree.leaves(state)
        env.step(key, state, jnp.int32(2))
        assert all(old is new for old, new in zip(before, jax.tree.leaves(state), strict=True))


def test_the_whole_grid_is_drawn():
    env = NavixEnv(room())
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    height, width = state.state.grid.shape
    picture = env.draw(state, timestep)
    assert picture.shape == (8 * height, 8 * width, 3)
    assert np.unique(picture.reshape(-1, 3), axis=0).shape[0] > 3


def test_unknown_names_are_refused():
    with pytest.raises(ValueError, match="Environment Navix-Empty-5x6-v0 not yet implemented"):
        NavixEnv("Navix-Empty-5x6-v0")
