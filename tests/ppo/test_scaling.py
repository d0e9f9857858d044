"""The table and the formulas of the batch scaling."""

import dataclasses

import pytest
from hypothesis import given, strategies as st

from ppo_mask.ppo import PPO
from ppo_mask.ppo._ppo import REFERENCE_BATCH, Scaling


@pytest.mark.parametrize(
    ("num_envs", "num_steps", "expected"),
    [
        (8, 128, Scaling(4, 4)),
        (256, 128, Scaling(4, 4)),
        (511, 128, Scaling(4, 4)),
        (512, 128, Scaling(8, 2)),
        (1000, 128, Scaling(10, 2)),  # 12 would not divide the batch.
        (1024, 128, Scaling(16, 2)),
        (2048, 128, Scaling(32, 2)),
        (4096, 128, Scaling(64, 2)),
        (65536, 128, Scaling(64, 2)),
    ],
)
def test_the_table(num_envs: int, num_steps: int, expected: Scaling) -> None:
    assert PPO(num_envs, num_steps).scaling == expected


batches = st.integers(1, 50_000_000).map(lambda n: 4 * n)


@given(batches, st.integers(1, 6))
def test_scaled_minibatches_are_the_most_that_divide_the_batch(size: int, parts: int) -> None:
    size *= parts
    chosen = PPO(size, 1, gradient_accumulation=parts).scaling.num_minibatches
    most = min(4 * (size // REFERENCE_BATCH), 64)
    if most <= 4:
        assert chosen == 4
    else:
        assert [n for n in range(chosen, most + 1) if size % (n * parts) == 0] == [chosen]


@given(batches, batches)
def test_larger_batches_never_get_more_epochs(one: int, other: int) -> None:
    small, large = (PPO(size, 1).scaling.update_epochs for size in sorted((one, other)))
    assert 4 >= small >= large >= 2


@given(batches, st.integers(1, 1000), st.integers(1, 1000))
def test_what_is_given_is_taken_and_switches_scaling_off(
    size: int, minibatches: int, epochs: int
) -> None:
    given = PPO(size * minibatches, 1, num_minibatches=minibatches, update_epochs=epochs)
    assert given.scaling == (minibatches, epochs)
    assert dataclasses.replace(given, update_epochs=None).scaling == (minibatches, 4)
    assert dataclasses.replace(given, num_minibatches=None).scaling == (4, epochs)
