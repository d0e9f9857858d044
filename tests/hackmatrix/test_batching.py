"""What is done for the compiler's sake changes no result."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix import batching


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
        batching.joined(jnp.asarray(words)), np.bitwise_or.reduce(words, -1)
    )


def test_side_by_side_is_stack():
    numbers = [jnp.float32(x) for x in (3, 1, 2)]
    np.testing.assert_array_equal(batching.side_by_side(numbers), jnp.stack(numbers))


def test_computed_once_gives_the_value_back():
    values = jnp.arange(5)
    np.testing.assert_array_equal(jax.jit(batching.computed_once)(values, jnp.bool_(False)), values)
