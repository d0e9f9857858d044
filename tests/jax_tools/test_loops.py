"""The loops that ``jax.lax`` does not have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.jax_tools._loops import mean_over_parts, scan_until


@pytest.mark.parametrize("num_parts", [1, 2, 6])
def test_a_mean_over_parts_is_that_over_the_whole(num_parts):
    rows = {"x": jnp.arange(12.0).reshape(6, 2), "n": jnp.arange(6)}

    def function(rows):
        assert len(rows["n"]) == 6 // num_parts
        return rows["x"].mean(axis=0), (rows["x"][:, 0] * rows["n"]).mean()

    parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), rows)
    mean, product = jax.jit(lambda parts: mean_over_parts(function, parts))(parts)
    np.testing.assert_allclose(mean, [5, 6])
    np.testing.assert_allclose(product, (2 * np.arange(6) * np.arange(6)).mean(), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16", "float8_e4m3fn"])
def test_a_mean_of_many_short_floats_is_not_lost_in_their_sum(dtype):
    parts = jnp.full((1024, 3), 200).astype(dtype)
    mean, number = jax.jit(lambda x: mean_over_parts(lambda x: (x, x.sum()), x[:, :1]))(parts)
    assert (mean.dtype, number.dtype) == (dtype, dtype)
    assert mean == number == parts[0, 0]


def _double(total, x):
    return 2 * total + x, {"before": total, "x": x}


@pytest.mark.parametrize(
    ("limit", "total", "taken"),
    # Totals before each step: 1, 3, 8, 19; after the last: 42.
    [(100.0, 42, 4), (19.0, 42, 4), (8.0, 19, 3), (4.0, 8, 2), (0.5, 1, 0)],
)
def test_a_scan_ends_before_the_first_step_not_to_be_taken(limit, total, taken):
    xs = jnp.array([1.0, 2.0, 3.0, 4.0])

    @jax.jit
    def run(limit):
        return scan_until(lambda out: out["before"] > limit, _double, jnp.float32(1), xs)

    # Alone, and beside another that ends elsewhere.
    both = jax.vmap(run)(jnp.array([2.0, limit]))
    for carry, outs, steps in (run(limit), jax.tree.map(lambda x: x[1], both)):
        assert (carry, steps) == (total, taken)
        before = np.where(np.arange(4) < taken, [1, 3, 8, 19], 0)
        np.testing.assert_array_equal(outs["before"], before)
        np.testing.assert_array_equal(outs["x"], np.where(np.arange(4) < taken, xs, 0))
    assert both[0][0] == 3


def test_without_an_end_it_is_scan():
    xs = jnp.array([1.0, 2.0, 3.0])
    carry, outs, steps = jax.jit(lambda: scan_until(None, _double, jnp.float32(1), xs))()
    assert (carry, steps) == (19, 3)
    np.testing.assert_array_equal(outs["x"], xs)
