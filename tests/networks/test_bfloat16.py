"""Matrix work in bfloat16, and everything else as exact as ever."""

import equinox as eqx
import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.networks import (
    AbstractActorCritic,
    MaskedCategorical,
    MLPActorCritic,
    add_normalization,
    as_model,
    to_bfloat16,
)
from ppo_mask.networks._products import bfloat16_product


class _OneLayer(AbstractActorCritic):
    """A network that has never heard of bfloat16."""

    layer: eqx.nn.Linear

    def __init__(self, *, key):
        self.layer = eqx.nn.Linear(4, 7, key=key)

    @property
    def hyperparameters(self):
        return {}

    def __call__(self, observation, action_mask):
        out = self.layer(jax.nn.relu(observation))
        return MaskedCategorical(out[:6], action_mask), out[6]


_MLP = MLPActorCritic(4, 6, 16, 2, layer_norm=True, key=jax.random.key(0))
_NETWORKS = [pytest.param(_MLP, id="mlp"), pytest.param(_OneLayer(key=jax.random.key(0)), id="own")]
_MASK = np.array([True, False, True, True, False, False])


def _loss(model, observation):
    distribution, value = jax.vmap(model, (0, None))(observation, jnp.asarray(_MASK))
    log_prob = jax.vmap(lambda d: d.log_prob(jnp.int32(2)))(distribution)
    return (value + log_prob + jax.vmap(lambda d: d.entropy())(distribution)).mean()


@eqx.filter_jit
def _said(model, observation, mask):
    """Probabilities, the entropy, a sample and the value of each row."""

    def of_one(observation, mask):
        distribution, value = model(observation, mask)
        sample = distribution.sample(jax.random.key(2))
        return distribution.probs, distribution.entropy(), sample, value

    return jax.vmap(of_one)(observation, jnp.broadcast_to(mask, (len(observation), 6)))


def _products(jaxpr):
    """The types that are multiplied in the matrix products of a program, and the sums' types."""
    for equation in jaxpr.eqns:
        if equation.primitive.name in ("dot_general", "bfloat16_product"):
            yield tuple(str(x.aval.dtype) for x in equation.invars), equation.outvars[0].aval.dtype
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from _products(inner)


@pytest.mark.parametrize("network", _NETWORKS)
def test_matrix_work_is_bfloat16_and_parameters_float32(network):
    params, static = eqx.partition(to_bfloat16(as_model(network)), eqx.is_inexact_array)

    def loss(params):
        return _loss(eqx.combine(params, static), jnp.ones((3, 4)))

    forward, products = (
        list(_products(jax.make_jaxpr(f)(params).jaxpr)) for f in (loss, jax.grad(loss))
    )
    if network is _MLP:
        # Six layers; in each of them but the first the gradient goes back to what came before.
        assert (len(forward), len(products)) == (6, 16)
        for types, sums in (*forward, *products):
            assert types == ("bfloat16", "bfloat16")
            assert sums == jnp.float32
    assert products
    assert all("bfloat16" in types for types, _ in products)
    gradient = jax.eval_shape(jax.grad(loss), params)
    assert {x.dtype for x in jax.tree.leaves((params, gradient))} == {np.dtype("float32")}


def test_gradients_of_a_batch_are_products_of_the_batch():
    """However it is batched: the gradient is that of the rounded numbers in float32."""
    rng = np.random.default_rng(0)
    rows, weights, wanted = (
        jnp.asarray(rng.integers(-8, 8, shape), jnp.bfloat16)
        for shape in ((6, 5, 4), (3, 4), (6, 5, 3))
    )

    def plain(x, weights):
        return jnp.float32(x) @ jnp.float32(weights).T

    def gradients(product):
        def loss(weights, rows):
            return (product(rows, weights) * wanted).sum()

        return jax.jit(jax.grad(loss, (0, 1)))(weights, rows)

    twice = jax.vmap(jax.vmap(bfloat16_product, (0, None)), (0, None))
    in_turn = jax.vmap(lambda x, w: jax.lax.map(lambda y: bfloat16_product(y, w), x), (0, None))

    def own_weights(x, w):
        return jax.vmap(bfloat16_product)(x, jnp.stack([w] * 6))

    expected = gradients(plain)
    for product in (bfloat16_product, twice, in_turn, own_weights):
        np.testing.assert_array_equal(product(rows, weights), plain(rows, weights))
        for one, other in zip(gradients(product), expected, strict=True):
            np.testing.assert_array_equal(one, other)


def test_not_a_number_stays_one():
    factors = jnp.ones((2, 3), jnp.bfloat16), jnp.full((2, 3), jnp.nan, jnp.bfloat16)
    assert jnp.isnan(jax.jit(bfloat16_product)(*factors)).all()


@pytest.mark.parametrize("network", _NETWORKS)
def test_masks_stay_exact(network):
    seen = np.float32(np.random.default_rng(0).normal(size=(64, 4)))
    probs, entropy, draws, value = _said(to_bfloat16(as_model(network)), seen, _MASK)
    assert (probs.dtype, entropy.dtype, value.dtype) == (jnp.float32,) * 3
    np.testing.assert_array_equal(probs[:, ~_MASK], 0)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6)
    assert _MASK[draws].all()
    plain_probs, _, _, plain_value = _said(network, seen, _MASK)
    assert (value != plain_value).any()
    np.testing.assert_allclose(value, plain_value, atol=0.05)
    np.testing.assert_allclose(probs, plain_probs, atol=0.03)

    # What leads to a forbidden action's logit is exactly as it was.
    grad = eqx.filter_jit(eqx.filter_grad(_loss))(to_bfloat16(as_model(network)), seen)
    head = grad.network.actor[-1] if network is _MLP else grad.network.layer
    for rows in (head.weight, head.bias):
        np.testing.assert_array_equal(rows[:6][~_MASK], 0)
        assert (rows[:6][_MASK] != 0).all()

    probs, entropy, draws, _ = _said(to_bfloat16(as_model(network)), seen, np.arange(6) == 3)
    assert (entropy == 0).all()
    assert (probs[:, 3] == 1).all()
    assert (draws == 3).all()


def test_equal_logits_are_equal_chances():
    network = eqx.tree_at(lambda m: m.actor[-1].weight, _MLP, jnp.zeros((6, 16)))
    probs, entropy, _, _ = _said(
        to_bfloat16(as_model(network)), np.ones((64, 4), np.float32), _MASK
    )
    np.testing.assert_allclose(entropy, np.log(3), rtol=1e-6)
    np.testing.assert_allclose(probs[:, _MASK], 1 / 3, rtol=1e-6)


def test_statistics_and_features_are_not_rounded():
    far = np.full((2, 4), 1000, np.float32) + np.array([[-1], [1]], np.float32)
    model = to_bfloat16(add_normalization(as_model(_MLP), jnp.asarray(far)))
    assert model.description == "MLPActorCritic, normalized, bfloat16"
    model = eqx.tree_at(lambda m: m.moments[0].mean, model, jnp.full(4, 1000.0))
    # In bfloat16 999 and 1001 are the same number.
    near = _said(to_bfloat16(as_model(_MLP)), np.float32([[-1] * 4, [1] * 4]), _MASK)
    np.testing.assert_allclose(_said(model, far, _MASK)[3], near[3], rtol=1e-5)
