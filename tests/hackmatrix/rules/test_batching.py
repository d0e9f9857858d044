"""What is done for the compiler's sake changes no result."""

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import HackMatrix
from hackmatrix.rules import batching, one_kernel
from hackmatrix.rules.one_kernel import MARKED
from ppo_mask.envs import VectorEnv
from ppo_mask.jax_tools import for_platform

MARK = 'xla_cpu_small_call="true"'


@pytest.mark.parametrize("size", [5, 33, 64, 521, 2049])
def test_reductions_equal_those_of_numpy(size):
    rng = np.random.default_rng(size)
    values = rng.integers(-100, 100, (7, size), dtype=np.int32)
    words = rng.integers(0, 2**32, (7, size), dtype=np.uint32)
    flags = rng.random((7, size)) < 1 / size

    @jax.jit
    def reduced(values, words, flags):
        whole = [reduce(values) for reduce in (batching.total, batching.smallest, batching.largest)]
        return whole, batching.join(words), batching.total(flags), batching.anywhere(flags)

    whole = [values.sum(-1), values.min(-1), values.max(-1)]
    wanted = whole, np.bitwise_or.reduce(words, -1), flags.sum(-1), flags.any(-1)
    jax.tree.map(np.testing.assert_array_equal, reduced(values, words, flags), wanted)


def test_stack_scalars_is_stack():
    numbers = [jnp.float32(x) for x in (3, 1, 2)]
    np.testing.assert_array_equal(batching.stack_scalars(numbers), jnp.stack(numbers))


def test_materialize_gives_the_value_back_and_is_compiled_once(compiled):
    values, never = jnp.arange(5), jnp.bool_(False)
    np.testing.assert_array_equal(jax.jit(batching.materialize)(values, never), values)
    batching.materialize(values, never)
    before = len(compiled())
    np.testing.assert_array_equal(batching.materialize(values, never), values)
    assert len(compiled()) == before


def test_looked_up_is_the_entry_of_a_table_of_two_four_eight():
    table = np.arange(3, 11) * 0.5
    found = jax.jit(jax.vmap(lambda i: batching.looked_up(table.tolist(), i)))(np.arange(8))
    np.testing.assert_array_equal(found, table)
    with pytest.raises(ValueError, match="shorter"):
        batching.looked_up([1.0, 2.0, 3.0], jnp.int32(0))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_words_joined_in_pairs_have_all_bits(count):
    words = np.random.default_rng(count).integers(1 << 16, size=(count, 5)).astype(np.uint16)
    joined = jax.jit(lambda words: batching.join_in_pairs(list(words)))(words)
    np.testing.assert_array_equal(joined, np.bitwise_or.reduce(words))


# Loops as one kernel on a CPU


def turn(i, carry):
    x, y = carry
    return (x * 3 + i.astype(jnp.uint32)) ^ y, y + jnp.sum(x, axis=-1, keepdims=True)


def plain(end, start):
    return jax.lax.fori_loop(0, end, turn, start)


def marked(end, start):
    return one_kernel.take_turns(jnp.int32(end), turn, start, most=9, at_once=4)


@pytest.fixture
def start():
    # Over more than a kilobyte, or the compiler would mark the loop itself.
    return np.arange(700, dtype=np.uint32), np.arange(700, dtype=np.uint32)[::-1]


def test_results_are_those_of_the_function(start):
    expected = plain(5, start)
    jax.tree.map(np.testing.assert_array_equal, jax.jit(marked)(5, start), expected)
    batch = jax.tree.map(lambda x: np.stack([x, x + 7, x * 5]), start)
    many, each = (jax.jit(jax.vmap(f, (None, 0))) for f in (marked, plain))
    jax.tree.map(np.testing.assert_array_equal, many(5, batch), each(5, batch))
    jax.tree.map(np.testing.assert_array_equal, marked(0, start), start)


@pytest.mark.parametrize("most", [4, 9])
@pytest.mark.parametrize("platform", ["cpu", "tpu"])
def test_each_game_takes_its_turns_however_many_are_taken_at_once(platform, most):
    @jax.jit
    @jax.vmap
    def play(times):
        def turn(i, x):
            return jnp.where(i < times, 3 * x + i, x)

        return one_kernel.take_turns(times, turn, jnp.int32(1), most, at_once=4)

    with for_platform(platform):
        np.testing.assert_array_equal(play(np.array([0, 1, 3])), [1, 3, 32])


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
