"""Many random numbers at once are those that JAX gives."""

import jax
import numpy as np
import pytest

from ppo_mask.jax_tools import random_bits, split_key


@pytest.mark.parametrize("shape", [(5,), (2, 3), (4, 3, 7)])
def test_they_are_those_that_jax_gives(shape):
    key = jax.random.key(3)
    found = split_key(key, *shape)
    assert found.shape == shape
    expected = jax.random.split(key, shape)
    np.testing.assert_array_equal(jax.random.key_data(found), jax.random.key_data(expected))
    np.testing.assert_array_equal(random_bits(key, *shape), jax.random.bits(key, shape))
