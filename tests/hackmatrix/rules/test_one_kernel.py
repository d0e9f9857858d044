"""Loops as one kernel on a CPU: the same results, and the compiler takes the mark."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.env import HackMatrix
from hackmatrix.rules import one_kernel
from hackmatrix.rules.one_kernel import MARKED
from ppo_mask.envs import VectorEnv

MARK = 'xla_cpu_small_call="true"'


def turn(i, carry):
    x, y = carry
    return (x * 3 + i.astype(jnp.uint32)) ^ y, y + jnp.sum(x, axis=-1, keepdims=True)


def plain(end, start):
    return jax.lax.fori_loop(0, end, turn, start)


def marked(end, start):
    return one_kernel.fori_loop(0, end, turn, start)


@pytest.fixture
def start():
    # Over more than a kilobyte, or the compiler would mark the loop itself.
    return np.arange(700, dtype=np.uint32), np.arange(700, dtype=np.uint32)[::-1]


def assert_equal(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def test_results_are_those_of_the_function(start):
    expected = plain(5, start)
    assert_equal(jax.jit(marked)(5, start), expected)
    batch = jax.tree.map(lambda x: np.stack([x, x + 7, x * 5]), start)
    many, each = (jax.jit(jax.vmap(f, (None, 0))) for f in (marked, plain))
    assert_equal(many(5, batch), each(5, batch))
    assert_equal(marked(0, start), start)


@pytest.mark.skipif(not MARKED, reason="not tried with this version of XLA")
def test_the_compiler_takes_the_mark(start):
    assert MARK not in jax.jit(plain).lower(5, start).compile().as_text()
    program = jax.jit(marked).lower(5, start).compile().as_text()
    assert MARK in program
    # The loop is in the call, not beside it.
    entry = program[program.index("ENTRY") :]
    assert "while(" not in entry
    assert "call(" in entry


def test_programs_for_other_devices_have_no_mark(start):
    for platform, marks in (("cpu", MARKED), ("cuda", False)):
        exported = jax.export.export(jax.jit(marked), platforms=[platform])(5, start)
        assert ("xla_cpu_small_call" in exported.mlir_module()) == marks


@pytest.mark.optimized
@pytest.mark.parametrize("num_envs", [1, 300, 2048, 32768])
def test_a_step_compiles_and_runs_with_any_number_of_games(num_envs):
    """What the compiler leaves to libraries depends on sizes, and a marked call must have none."""
    env = VectorEnv(HackMatrix(compact=True), num_envs)
    state, timestep = jax.jit(env.reset)(jax.random.key(0))
    actions = jnp.argmax(timestep.action_mask, axis=1)
    state, timestep = jax.jit(env.step)(jax.random.key(1), state, actions)
    assert (state.env_state.game.steps + timestep.ended >= 1).all()
