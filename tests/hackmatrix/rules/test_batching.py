"""What is done for the compiler's sake changes no result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.rules import batching


@pytest.mark.parametrize("size", [1, 5, 23, 32, 33, 36, 42, 64, 521, 2048, 2049, 32768])
def test_reductions_equal_those_of_numpy(size):
    rng = np.random.default_rng(size)
    values = rng.integers(-100, 100, (7, size), dtype=np.int32)
    words = rng.integers(0, 2**32, (7, size), dtype=np.uint32)
    flags = rng.random((7, size)) < 1 / size
    given = jnp.asarray(values)
    np.testing.assert_array_equal(batching.total(given), values.sum(-1))
    np.testing.assert_array_equal(batching.smallest(given), values.min(-1))
    np.testing.assert_array_equal(batching.largest(given), values.max(-1))
    np.testing.assert_array_equal(batching.total(jnp.asarray(flags)), flags.sum(-1))
    np.testing.assert_array_equal(batching.anywhere(jnp.asarray(flags)), flags.any(-1))
    np.testing.assert_array_equal(
        batching.join(jnp.asarray(words)), np.bitwise_or.reduce(words, -1)
    )


def test_side_by_side_is_stack():
    numbers = [jnp.float32(x) for x in (3, 1, 2)]
    np.testing.assert_array_equal(batching.side_by_side(numbers), jnp.stack(numbers))


def test_computed_once_gives_the_value_back():
    values = jnp.arange(5)
    np.testing.assert_array_equal(jax.jit(batching.computed_once)(values, jnp.bool_(False)), values)


def test_computed_once_without_jit_is_compiled_once(compiled):
    batching.computed_once(jnp.arange(5), jnp.bool_(False))
    before = len(compiled())
    np.testing.assert_array_equal(batching.computed_once(jnp.arange(5), jnp.bool_(False)), range(5))
    assert len(compiled()) == before


@pytest.mark.parametrize("size", [1, 2, 8])
def test_looked_up_is_the_entry(size):
    table = np.arange(3, 3 + size) * 0.5
    found = [batching.looked_up(table.tolist(), jnp.int32(i)) for i in range(size)]
    np.testing.assert_array_equal(found, table)


def test_a_table_to_look_up_has_two_four_eight_entries():
    with pytest.raises(ValueError, match="shorter"):
        batching.looked_up([1.0, 2.0, 3.0], jnp.int32(0))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_words_joined_in_pairs_have_all_bits(count):
    words = np.random.default_rng(count).integers(1 << 16, size=(count, 5)).astype(np.uint16)
    expected = np.bitwise_or.reduce(words)
    np.testing.assert_array_equal(batching.join_in_pairs([jnp.array(w) for w in words]), expected)
