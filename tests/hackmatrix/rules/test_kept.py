"""A position as it is kept: packed and taken apart again; what is kept with it is up to date."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import recordings
from hackmatrix import HackMatrix, positions
from hackmatrix.env import new_state
from hackmatrix.rules.game import replace
from hackmatrix.rules.state import keep, keep_moved, with_fields_of
from ppo_mask.envs import VectorEnv

ENVS, STEPS = 256, 120


@pytest.fixture(scope="module")
def played():
    """Random games, a while after their start; programs, new stages and new games among them."""
    env = VectorEnv(HackMatrix(), ENVS)

    @jax.jit
    def play(state, mask):
        def step(carry, key):
            state, mask, events = carry
            action_key, taste_key, step_key = jax.random.split(key, 3)
            # Most of what is allowed are moves: half of the time anything else is preferred.
            other = (jnp.arange(28) >= 4) & (jax.random.uniform(taste_key, (ENVS, 1)) < 0.5)
            liked = jax.random.uniform(action_key, mask.shape) + other
            action = jnp.argmax(jnp.where(mask, liked, -1), axis=1)
            state, timestep = env.step(step_key, state, action)
            now = [timestep.ended, timestep.info["stage_completed"], action == 4, action > 4]
            events += jnp.stack([jnp.sum(event) for event in now])
            return (state, timestep.action_mask, events), None

        start = (state, mask, jnp.zeros(4, jnp.int32))
        return jax.lax.scan(step, start, jax.random.split(jax.random.key(1), STEPS))[0]

    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    state, _, events = play(state, timestep.action_mask)
    return state.env_state, events


def test_what_is_kept_with_a_position_is_what_a_fresh_look_finds(played):
    state, events = played
    assert events.min() >= 50, "the games must have had some of everything"
    fresh = jax.jit(jax.vmap(lambda state: new_state(state.game, 8)))(state)
    for name in ("kept", "valid", "occupied", "ground"):
        now, then = getattr(state, name), getattr(fresh, name)
        jax.tree.map(np.testing.assert_array_equal, now, then)


def test_a_position_taken_apart_and_packed_is_the_same(played):
    state, _ = played

    def both(kept):
        return keep(kept.game), keep_moved(kept.game, kept.settled)

    for again in jax.jit(jax.vmap(both))(state.kept):
        jax.tree.map(np.testing.assert_array_equal, again, state.kept)


@pytest.mark.slow
def test_named_numbers_the_board_and_the_entities_are_taken_from_another_position(played):
    kept = played[0].kept
    others = jax.tree.map(lambda x: np.roll(x, 1, axis=0), kept)

    def packed(one, other):
        return with_fields_of(one, other, ("hp", "credits", "turn", "owned", "show"))

    def apart(one, other):
        now, then = one.game, other.game
        player = replace(now.player, hp=then.player.hp, credits=then.player.credits)
        same = {
            name: getattr(then, name) for name in ("board", "entities", "turn", "owned", "show")
        }
        return keep(replace(now, player=player, **same))

    found, expected = (jax.jit(jax.vmap(f))(kept, others) for f in (packed, apart))
    jax.tree.map(np.testing.assert_array_equal, found, expected)


def test_recorded_positions_come_back_from_memory():
    some = recordings.read("observations.jsonl.gz")[:20]
    for state in (x["state"] for x in some):
        kept = positions.load(state).kept
        game = jax.jit(keep)(kept.game).game
        assert eqx.tree_equal(game, kept.game)
