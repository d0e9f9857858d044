"""Which rows are gone through at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.minibatches import small_parts


@pytest.mark.parametrize(
    ("parts", "rows", "smaller"),
    # Of 1025 rows there are no two equal parts.
    [(1, 8192, 8), (2, 4096, 8), (1, 1024, 1), (1, 1025, 1), (1, 1500, 2), (3, 2049, 9)],
)
def test_parts_of_a_minibatch_are_small_on_a_cpu(parts, rows, smaller):
    order = jnp.arange(parts * rows * 2).reshape(parts, rows, 2)
    cut, same = small_parts((order, order[..., 0]))
    assert cut.shape == (smaller, parts * rows // smaller, 2)
    np.testing.assert_array_equal(cut.reshape(order.shape), order)
    np.testing.assert_array_equal(same, cut[..., 0])


def test_parts_stay_as_they_are_on_an_accelerator(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert small_parts(jnp.zeros((2, 8192))).shape == (2, 8192)
