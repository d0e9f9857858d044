"""Which rows are gone through at once."""

import jax
import numpy as np
import pytest

from ppo_mask.networks import MLPActorCritic, as_model
from ppo_mask.training import check_minibatches, shuffle_rows
from ppo_mask.training._minibatches import cache_sized_parts


@pytest.mark.parametrize(
    ("width", "parts", "rows", "smaller"),
    [
        (256, 1, 8192, 8),
        (256, 2, 4096, 8),
        (256, 1, 1024, 1),
        (256, 1, 1025, 1),  # Of 1025 rows there are no two equal parts.
        (256, 1, 1500, 2),
        (256, 3, 2049, 9),
        (64, 1, 8192, 2),  # A small network's rows take less.
        (64, 1, 4096, 1),
        (9999, 1, 8192, 8),  # Of a large one's, few would be slow.
    ],
)
def test_parts_of_a_minibatch_are_small_on_a_cpu(width, parts, rows, smaller):
    order = np.arange(parts * rows * 2).reshape(parts, rows, 2)
    cut, same = jax.device_get(
        jax.jit(cache_sized_parts)((order, order[..., 0]), np.zeros((3, width)))
    )
    assert cut.shape == (smaller, parts * rows // smaller, 2)
    np.testing.assert_array_equal(cut.reshape(order.shape), order)
    np.testing.assert_array_equal(same, cut[..., 0])


def test_every_epoch_has_all_rows_once_in_an_order_of_its_own():
    rows = shuffle_rows(jax.random.key(0), num_envs=6, units=10, num_minibatches=4, epochs=3)
    assert rows.shape == (12, 1, 15)
    orders = np.asarray(rows).reshape(3, 60)
    np.testing.assert_array_equal(np.sort(orders), np.tile(np.arange(60), (3, 1)))
    assert len({tuple(order) for order in orders}) == 3


def test_every_order_is_as_likely():
    rows = shuffle_rows(jax.random.key(1), num_envs=1, units=3, epochs=6000)
    orders = np.asarray(rows).reshape(6000, 3)
    _, counts = np.unique(orders, axis=0, return_counts=True)
    assert len(counts) == 6
    assert (abs(counts - 1000) < 6 * np.sqrt(6000 * (1 / 6) * (5 / 6))).all()


def test_minibatches_that_would_leave_rows_out_are_refused():
    model = as_model(MLPActorCritic(1, 2, 4, 1, key=jax.random.key(0)))
    check_minibatches(model, 64, 10, 8)
    with pytest.raises(ValueError, match="num_minibatches = 7 does not divide the batch of 64 env"):
        check_minibatches(model, 64, 10, 7)
