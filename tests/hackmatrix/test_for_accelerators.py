"""What accelerators compute in another way than a CPU is the same game, bit by bit."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import hackmatrix as hm
from ppo_mask.jax_tools import for_platform
from recorded import states, views

ENV = hm.HackMatrix(starting_weights=jnp.ones(8), head_start=hm.HeadStart(programs=0.6, credits=30))


def stepped(platform):
    """A step of recorded games, and new games where they end, as lowered for a CPU."""
    allowed = views().mask.copy()
    allowed[:20] ^= True  # What is not allowed ends a game.
    actions = (np.random.default_rng(0).random(allowed.shape) * allowed).argmax(axis=-1)
    keys = jax.random.split(jax.random.key(0), (2, len(actions)))
    given = (*keys, states(), actions.astype(np.int32))
    with for_platform(platform):
        lowered = jax.jit(jax.vmap(lambda *given: ENV.step_and_reset(*given))).lower(*given)
    return lowered.as_text(), lowered.compile()(*given), actions


@pytest.mark.slow
def test_the_same_games_are_played_with_fewer_loops():
    (cpu, outcome, actions), (tpu, other, _) = stepped("cpu"), stepped("tpu")
    assert len(set(actions)) > 25
    timestep, _ = outcome
    assert timestep.info["stage_completed"].any()
    assert timestep.terminated.any()
    jax.tree.map(np.testing.assert_array_equal, outcome, other)
    assert tpu.count("stablehlo.while") < cpu.count("stablehlo.while") / 2
