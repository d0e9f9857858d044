"""What a program computes in one way on a CPU and in another elsewhere."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.jax_tools import by_platform, default_platform, for_platform, rarely


@jax.jit
def chosen(x):
    return by_platform(lambda x: x, lambda x: -x, x)


def test_a_program_is_for_the_default_device_unless_it_is_said():
    assert default_platform() == "cpu"  # as all tests run
    assert chosen(1) == 1
    for platform, result in (("tpu", -1), ("cpu", 1), ("gpu", -1)):
        with for_platform(platform):
            assert chosen(1) == result  # It was traced before, for another.
    assert chosen(1) == 1


def test_for_the_platform_of_the_default_device_nothing_is_traced_again():
    traced = []
    function = jax.jit(lambda x: traced.append(x) or x)
    function(1)
    with for_platform("cpu"):
        function(1)
    assert len(traced) == 1


@pytest.mark.parametrize("batch", [1, 300])
def test_what_is_short_runs_for_all_elsewhere(batch):
    predicate = jax.random.bernoulli(jax.random.key(0), 0.3, (batch,))
    x = jax.random.normal(jax.random.key(1), (batch, 2))

    def double(operand):
        (y, _), z = operand
        return y * 2, z + 1

    @jax.vmap
    def run(predicate, x, shared):
        # The first array is changed in place on a CPU.
        return rarely(predicate, double, ((x, shared), x), (x, -x), short=True)

    def program():
        # Another function each time: JAX does not trace one twice.
        return jax.jit(lambda *args: run(*args)).lower(predicate, x, jnp.ones((batch, 3)))

    expected = jnp.where(predicate[:, None], 2 * x, x), jnp.where(predicate[:, None], x + 1, -x)
    for platform, loops in (("cpu", 1), ("tpu", 0)):
        with for_platform(platform):
            lowered = program()
        assert lowered.as_text().count("stablehlo.while") == loops
        got = lowered.compile()(predicate, x, jnp.ones((batch, 3)))
        jax.tree.map(np.testing.assert_array_equal, got, expected)
