"""The compact observation holds what the flat one does, and everything takes either."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recordings
from games import random_positions
from hackmatrix import HackMatrix, positions
from hackmatrix.networks import BoardActorCritic, PlayerCenteredMLP, flat_mlp
from hackmatrix.observation import (
    OBSERVATION_SIZE,
    CompactObservation,
    cell_channels,
    compact,
    compress,
    divisors,
    expand,
)
from hackmatrix.play.policies import SCRIPTED
from ppo_mask.envs import VectorEnv

FLAT, COMPACT = HackMatrix(max_steps=6), HackMatrix(max_steps=6, compact=True)


@pytest.fixture(scope="module")
def seen() -> tuple[jax.Array, CompactObservation]:
    """Recorded positions, in both forms."""
    states = positions.load_all([x["state"] for x in recordings.read("observations.jsonl.gz")])
    return jax.jit(jax.vmap(FLAT.observe))(states), jax.jit(jax.vmap(COMPACT.observe))(states)


def test_each_form_gives_the_other_exactly(seen):
    flat, compact = seen
    assert flat.shape[1:] == (OBSERVATION_SIZE,)
    assert sum(x[0].nbytes for x in jax.tree.leaves(compact)) * 19 < flat[0].nbytes
    np.testing.assert_array_equal(jax.jit(jax.vmap(expand))(compact), flat)
    again = jax.jit(jax.vmap(compress))(flat)
    jax.tree.map(np.testing.assert_array_equal, again, compact)
    first = flat[0]
    assert expand(first) is first
    one = jax.tree.map(lambda x: x[0], compact)
    assert compress(one) is one


def test_few_positions_are_seen_as_many_are():
    """Shared cells, too, of which only the first enemy is seen."""
    states = positions.load_all(list(random_positions(np.random.default_rng(1), 256)))
    seen = [
        jax.jit(jax.vmap(lambda x, few=few: compact(x.game, x.ground, among_few=few)))(states)
        for few in (False, True)
    ]
    jax.tree.map(np.testing.assert_array_equal, *seen)


def test_channels_and_planes_are_those_of_the_flat_form(seen):
    flat, compact = seen
    cells = np.asarray(flat[:, 33:]).reshape(-1, 36, 42)
    some = np.array([41, 7, 36])
    got = jax.jit(jax.vmap(lambda x: cell_channels(x.cells, some)))(compact)
    np.testing.assert_array_equal(np.float32(got) / np.float32(divisors(some)), cells[:, :, some])

    def planes(seen):
        return seen.plane("turns").flags(), seen.plane("program", "data").flags()

    turns, held = jax.jit(jax.vmap(planes))(compact)
    np.testing.assert_array_equal(turns, cells[:, :, 36] != 0)
    np.testing.assert_array_equal(held, (cells[:, :, [7, *range(12, 35)]] != 0).any(-1))


def test_amounts_that_no_game_limits_are_held():
    most = (1 << 16) - 1
    compact = compress(jnp.zeros(OBSERVATION_SIZE))
    player = compact.player.at[jnp.array([6, 7])].set(most)  # data siphons and attack
    compact = eqx.tree_at(lambda x: x.player, compact, player)
    np.testing.assert_array_equal(compress(expand(compact)).player, compact.player)


@pytest.mark.nightly
@pytest.mark.slow
def test_games_are_the_same_whatever_the_form():
    def play(env: HackMatrix):
        def step(carry, key):
            state, mask = carry
            action = jnp.argmax(jax.random.uniform(key, mask.shape) * mask, axis=1)
            state, timestep = envs.step(key, state, action)
            return (state, timestep.action_mask), timestep

        envs = VectorEnv(env, 32)
        state, first = envs.reset(jax.random.key(1))
        keys = jax.random.split(jax.random.key(2), 20)
        (state, _), rest = jax.lax.scan(step, (state, first.action_mask), keys)
        return state, first, rest

    def flat(timestep):
        both = (timestep.observation, timestep.final_observation)
        many = expand
        for _ in range(timestep.reward.ndim):
            many = jax.vmap(many)
        return eqx.tree_at(
            lambda t: (t.observation, t.final_observation), timestep, tuple(map(many, both))
        )

    expected = jax.jit(lambda: play(FLAT))()
    state, first, rest = jax.jit(lambda: play(COMPACT))()
    assert np.asarray(rest.truncated).any()
    assert isinstance(rest.observation, CompactObservation)
    jax.tree.map(np.testing.assert_array_equal, (state, flat(first), flat(rest)), expected)


@pytest.mark.parametrize(
    "model",
    [
        PlayerCenteredMLP(16, 1, key=jax.random.key(0)),
        BoardActorCritic(8, 1, key=jax.random.key(0)),
        flat_mlp(16, 1, key=jax.random.key(0)),
        *SCRIPTED.values(),
    ],
    ids=lambda model: type(model).__name__,
)
def test_networks_take_either_form(model, seen):
    mask = jnp.arange(28) < 5

    @jax.jit
    @jax.vmap
    def answers(observation):
        distribution, value = model(observation, mask)
        return distribution.probs, value

    flat, compact = (jax.tree.map(lambda x: x[:64], form) for form in seen)
    for one, other in zip(answers(flat), answers(compact), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
