"""What accelerators compute in another way than a CPU is the same game, bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hackmatrix as hm
from ppo_mask.envs import VectorEnv
from ppo_mask.jax_tools import for_platform

PROGRAMS = hm.HeadStart(programs=0.6, credits=30, energy=30, data_siphons=8)


def played_for(platform):
    """The program that plays some games, lowered for a CPU, and what came of them."""
    env = hm.HackMatrix(max_steps=30, starting_weights=jnp.ones(8), head_start=PROGRAMS)
    vector_env = VectorEnv(env, 64)

    def act(carry, key):
        state, mask = carry
        draw, key = jax.random.split(key)
        action = jax.random.categorical(draw, jnp.where(mask, 0.0, -jnp.inf)).astype(jnp.int32)
        state, timestep = vector_env.step(key, state, action)
        return (state, timestep.action_mask), (action, timestep)

    def play(key):
        state, timestep = vector_env.reset(key)
        return jax.lax.scan(act, (state, timestep.action_mask), jax.random.split(key, 100))

    with for_platform(platform):
        lowered = jax.jit(play).lower(jax.random.key(0))
    return lowered.as_text(), lowered.compile()(jax.random.key(0))


@pytest.fixture(scope="module")
def games():
    return {platform: played_for(platform) for platform in ("cpu", "tpu")}


@pytest.mark.slow
def test_the_same_games_are_played(games):
    (_, outcome), (_, other) = games.values()
    actions, timesteps = outcome[1]
    assert set(np.unique(actions)) == set(range(28))
    assert timesteps.info["stage_completed"].any()
    jax.tree.map(np.testing.assert_array_equal, outcome, other)


@pytest.mark.slow
def test_accelerators_have_few_loops(games):
    loops = {name: program.count("stablehlo.while") for name, (program, _) in games.items()}
    assert loops["tpu"] < loops["cpu"] / 2, loops
