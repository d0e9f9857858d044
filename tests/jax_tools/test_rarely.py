"""`rarely` means what `lax.cond` means, however it is batched."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.rules.batching import batch_max
from ppo_mask.jax_tools import rarely


def _dear(operand):
    x, weight, key = operand
    return x @ weight + jax.random.uniform(key)


def _both(predicate, x, weight, key):
    got = rarely(predicate, _dear, (x, weight, key), jnp.zeros(3))
    want = jax.lax.cond(predicate, _dear, lambda _: jnp.zeros(3), (x, weight, key))
    return got, want


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.mark.parametrize("batch", [7, 600])
def test_equals_cond_under_vmap(batch, rng):
    """And alone."""
    run = jax.jit(jax.vmap(_both, in_axes=(0, 0, None, 0)))
    x, weight = np.float32(rng.normal(size=(batch, 2))), np.ones((2, 3), np.float32)
    keys = jax.random.split(jax.random.key(2), batch)
    for share in (0.0, 0.02, 0.5, 1.0):
        got, want = run(rng.random(batch) < share, x, weight, keys)
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)
    np.testing.assert_array_equal(*jax.jit(_both)(True, x[0], weight, keys[0]))


def test_members_are_served_whatever_their_cost(rng):
    predicate, cost = rng.random(300) < 0.5, rng.integers(0, 400, 300).astype(np.int32)
    x = np.arange(300, dtype=np.float32)

    @jax.jit
    @jax.vmap
    def run(predicate, cost, x):
        return rarely(predicate, jnp.square, x, -x, cost=cost)

    np.testing.assert_array_equal(run(predicate, cost, x), np.where(predicate, x**2, -x))


def test_costly_members_are_served_first():
    """A loop as long as the longest of a chunk runs for all of it: the costly ones share theirs."""

    def count(length):
        # Each member returns the longest loop of its chunk.
        return batch_max(length)

    length = np.array([1, 9] * 148 + [1] * 24, np.int32)
    run = jax.vmap(lambda n: rarely(n > 0, count, n, 0 * n, share=20, cost=n))
    expected = length.copy()
    expected[np.flatnonzero(length == 1)[:12]] = 9  # They fill up the last chunk of the costly.
    np.testing.assert_array_equal(jax.jit(run)(length), expected)


@pytest.mark.parametrize("shared", [True, False])
def test_equals_cond_under_two_vmaps(shared, rng):
    x, weight = (np.float32(rng.normal(size=(4, *shape))) for shape in ((25, 2), (2, 3)))
    keys = jax.random.split(jax.random.key(2), (4, 25))
    outer = (0, 0, None if shared else 0, 0)
    got, want = jax.jit(jax.vmap(jax.vmap(_both, (0, 0, None, 0)), outer))(
        rng.random((4, 25)) < 0.3, x, weight[0] if shared else weight, keys
    )
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


def test_runs_the_function_on_chunks_only():
    """The function's matrix product is done for 16 of 512 rows at a time, not for all."""

    def over_batch(predicate, x):
        return jax.vmap(lambda p, x: rarely(p, lambda x: x @ jnp.ones((7, 7)), x, x))(predicate, x)

    jaxpr = str(jax.make_jaxpr(over_batch)(jnp.zeros(512, bool), jnp.ones((512, 7))))
    products = [line for line in jaxpr.splitlines() if "dot_general" in line]
    assert products
    assert all("f32[16,7]" in line for line in products)


def _swap(operand):
    x, step, y = operand
    return y + step, x - step


def _in_place(predicate, x, y, step):
    got = rarely(predicate, _swap, (x, step, y), (y, x))
    want = jax.lax.cond(predicate, _swap, lambda _: (y, x), (x, step, y))
    return got, want


@pytest.mark.parametrize("batch", [7, 600])
def test_arguments_that_are_part_of_the_result_otherwise(batch, rng):
    predicate, (x, y) = rng.random(batch) < 0.3, rng.normal(size=(2, batch, 3)).astype(np.float32)
    got, want = jax.jit(jax.vmap(_in_place, (0, 0, 0, None)))(predicate, x, y, 2.0)
    jax.tree.map(np.testing.assert_array_equal, got, want)
    got, want = jax.jit(_in_place)(predicate[0], x[0], y[0], 2.0)
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_a_batch_is_changed_in_place():
    """Who needs nothing costs nothing: the array is not even copied."""

    def over_batch(predicate, x):
        return jax.vmap(lambda p, x: rarely(p, jnp.sin, x, x))(predicate, x)

    large = jnp.ones((512, 7))
    program = jax.jit(over_batch, donate_argnums=1).lower(jnp.zeros(512, bool), large).compile()
    assert "f32[512,7]" in program.as_text()
    copied = [line for line in program.as_text().splitlines() if "f32[512,7]{1,0} copy(" in line]
    assert not copied


def test_a_constant_otherwise_inside_a_loop_that_is_batched(rng):
    def loop(x):
        def step(total, x):
            return total + rarely(x > 0.5, jnp.square, x, jnp.float32(1)), None

        return jax.lax.scan(step, jnp.float32(0), x)[0]

    x = np.float32(rng.random((5, 40)))
    expected = np.where(x > 0.5, x**2, 1).sum(1)
    np.testing.assert_allclose(jax.jit(jax.vmap(loop))(x), expected, rtol=1e-5)
