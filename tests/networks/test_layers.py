"""Layers of networks: how they start, and what they do with a batch."""

import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.networks.layers import activate, affine, linear


def test_a_batch_goes_through_the_same_weights_one_by_one():
    layer = linear(6, 4, 1.0, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (3, 5, 6))
    one_by_one = jax.vmap(jax.vmap(lambda each: affine(layer, each)))(x)
    np.testing.assert_allclose(affine(layer, x), one_by_one, atol=1e-6)
    half = jax.tree.map(lambda w: w.astype(jnp.bfloat16), layer)
    assert affine(half, x).dtype == jnp.float32


def test_normed_outputs_and_gradients_equal_layer_norms():
    layer = linear(6, 8, 1.5, jax.random.key(0))
    assert layer.bias is not None
    bias = 0.3 * jax.random.normal(jax.random.key(1), (8,))
    layer = eqx.tree_at(lambda x: x.bias, layer, bias)
    x = jax.random.normal(jax.random.key(2), (5, 6))

    def plain(layer, x):
        return jnp.tanh(jax.nn.standardize(affine(layer, x)))

    def gradients(function):
        def loss(layer, x):
            out = jax.vmap(lambda each: function(layer, each))(x)
            return (out * jnp.arange(8)).sum()

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1)))(layer, x)

    ours = jax.tree.leaves(gradients(lambda layer, x: activate(layer, x, True)))
    for one, other in zip(ours, jax.tree.leaves(gradients(plain)), strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-5)


def test_a_gain_is_that_of_the_input():
    layer = linear(6, 4, 1.0, jax.random.key(0))
    x = jax.random.normal(jax.random.key(1), (6,))
    np.testing.assert_allclose(affine(layer, x, 10.0), affine(layer, 10 * x), rtol=1e-5)


@pytest.mark.slow
def test_networks_of_several_seeds_start_on_two_cores():
    """In a process of its own: what went wrong was a wait without an end."""
    start = (
        "import os\n"
        "if hasattr(os, 'sched_setaffinity'):\n"
        "    os.sched_setaffinity(0, [*os.sched_getaffinity(0)][:2])\n"
        "import equinox as eqx, jax; from ppo_mask.networks import MLPActorCritic; "
        "make = lambda key: eqx.filter(MLPActorCritic(827, 28, key=key), eqx.is_array); "
        "keys = jax.random.split(jax.random.key(0), 3); "
        "jax.block_until_ready(eqx.filter_jit(jax.vmap(make))(keys))"
    )
    subprocess.run([sys.executable, "-c", start], check=True, timeout=240)
