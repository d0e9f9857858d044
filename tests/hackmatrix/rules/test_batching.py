"""What is done for the compiler's sake changes no result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.rules import batching


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


def test_materialize_gives_the_value_back():
    values = jnp.arange(5)
    np.testing.assert_array_equal(jax.jit(batching.materialize)(values, jnp.bool_(False)), values)


def test_materialize_without_jit_is_compiled_once(compiled):
    batching.materialize(jnp.arange(5), jnp.bool_(False))
    before = len(compiled())
    np.testing.assert_array_equal(batching.materialize(jnp.arange(5), jnp.bool_(False)), range(5))
    assert len(compiled()) == before


def test_looked_up_is_the_entry():
    table = np.arange(3, 11) * 0.5
    found = jax.jit(jax.vmap(lambda i: batching.looked_up(table.tolist(), i)))(np.arange(8))
    np.testing.assert_array_equal(found, table)


def test_a_table_to_look_up_has_two_four_eight_entries():
    with pytest.raises(ValueError, match="shorter"):
        batching.looked_up([1.0, 2.0, 3.0], jnp.int32(0))


@pytest.mark.parametrize("count", [1, 3, 8])
def test_words_joined_in_pairs_have_all_bits(count):
    words = np.random.default_rng(count).integers(1 << 16, size=(count, 5)).astype(np.uint16)
    joined = jax.jit(lambda words: batching.join_in_pairs(list(words)))(words)
    np.testing.assert_array_equal(joined, np.bitwise_or.reduce(words))
