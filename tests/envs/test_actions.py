"""What an action is: a number, or one for each part of a mask."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.envs import Actions


def test_masks_are_counted_by_part():
    mask = jnp.array([[1, 0, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    np.testing.assert_array_equal(Actions.of(5).count(mask), [4, 2])
    np.testing.assert_array_equal(Actions.of((2, 3)).count(mask), [[1, 3], [2, 0]])
    np.testing.assert_array_equal(Actions.of(5).any_allowed(mask), [True, True])
    np.testing.assert_array_equal(Actions.of((2, 3)).any_allowed(mask), [True, False])
    parts = [(parts, x.tolist()) for parts, x in Actions.of((1, 2, 2, 3)).split(np.arange(8))]
    assert parts == [
        (slice(0, 1), [[0]]), (slice(1, 3), [[1, 2], [3, 4]]), (slice(3, 4), [[5, 6, 7]])
    ]  # fmt: skip


def test_parts_of_equal_size_are_computed_together_wherever_they_are():
    actions = Actions.of((2, 3, 2, 1, 3))
    row = jnp.arange(2 * 11).reshape(2, 11) % 5
    wanted = [part.sum(axis=-1) for part in np.split(np.asarray(row), actions.starts[1:], axis=-1)]
    np.testing.assert_array_equal(
        actions.each_part(lambda part: part.sum(axis=-1), row), np.stack(wanted, axis=-1)
    )
    whole = [part.reshape(2, -1) for _, part in actions.split(row)]
    np.testing.assert_array_equal(actions.unsplit(whole), row)
    sizes = [len(list(Actions.of((6, 4, 4, 7) * n).split(np.arange(21 * n)))) for n in (1, 50)]
    assert sizes == [3, 3]


def test_an_action_is_one_number_for_each_part():
    for action in ([1, 2], np.array([1, 2], np.uint8), jnp.array([1, 2])):
        array = Actions.of((3, 5)).convert(action)
        assert array.dtype == jnp.int32
        assert array.tolist() == [1, 2]
    for action in (1, [1.0, 2.0], [1], [[1, 2]], jnp.zeros(3, int)):
        with pytest.raises(
            ValueError, match=r"^action is .*, not int32\[2\]: one of each part of 3 x 5"
        ):
            Actions.of((3, 5)).convert(action)


@pytest.mark.parametrize("num_actions", [5, (2, 3), (1, 2, 2), (2, 1, 2)])
def test_a_random_action_is_any_that_is_allowed(num_actions):
    mask = np.array([True, False, True, False, True])
    draw = jax.vmap(lambda key: Actions.of(num_actions).sample(key, jnp.asarray(mask)))
    drawn = np.asarray(jax.jit(draw)(jax.random.split(jax.random.key(0), 3000))).reshape(3000, -1)
    parts = (num_actions,) if isinstance(num_actions, int) else num_actions
    starts = np.cumsum([0, *parts])
    for start, n, action in zip(starts, parts, drawn.T, strict=False):
        allowed = mask[start : start + n]
        share = np.bincount(action, minlength=n) / 3000
        np.testing.assert_allclose(share, allowed / allowed.sum(), atol=0.04)


def test_actions_in_words():
    assert str(Actions.of((4,))) == "1 choice of 4 actions"
    assert str(Actions.of((2, 3, 4, 5, 6))) == "5 choices of 2 to 6 actions"
