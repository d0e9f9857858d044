"""Matrix work in bfloat16, and everything else as exact as ever."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from environments import CartPole
from ppo_mask import ppo
from ppo_mask.envs import VectorEnv
from ppo_mask.envs.probes import MaskedLocks
from ppo_mask.networks import (
    AbstractActorCritic,
    BFloat16ActorCritic,
    MaskedCategorical,
    MLPActorCritic,
    NormalizedActorCritic,
    add_normalization,
    to_bfloat16,
)
from ppo_mask.ppo import PPOConfig, start_rollout


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
_MASK = jnp.array([True, False, True, True, False, False])


def _loss(model, observation):
    distribution, value = jax.vmap(model, (0, None))(observation, _MASK)
    log_prob = jax.vmap(lambda d: d.log_prob(jnp.int32(2)))(distribution)
    return (value + log_prob + jax.vmap(lambda d: d.entropy())(distribution)).mean()


def _products(jaxpr):
    """The types that are multiplied in the matrix products of a program, and the sums' types."""
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            yield tuple(str(x.aval.dtype) for x in equation.invars), equation.outvars[0].aval.dtype
        for value in jax.tree.leaves(equation.params, is_leaf=lambda x: hasattr(x, "eqns")):
            value = getattr(value, "jaxpr", value)
            if hasattr(value, "eqns"):
                yield from _products(value)


@pytest.mark.slow
@pytest.mark.parametrize("network", _NETWORKS)
def test_matrix_work_is_bfloat16_and_parameters_float32(network):
    model = to_bfloat16(network)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    seen = jnp.ones((3, 4))

    def gradient(params):
        return jax.grad(lambda params: _loss(eqx.combine(params, static), seen))(params)

    products = list(_products(jax.make_jaxpr(gradient)(params).jaxpr))
    forward = list(_products(jax.make_jaxpr(lambda p: _loss(eqx.combine(p, static), seen))(params)))
    assert products
    if network is _MLP:
        # Six layers; in each of them but the first the gradient goes back to what came before.
        assert len(forward) == 6
        assert all(types == ("bfloat16", "bfloat16") for types, _ in forward)
        assert all(sums == jnp.float32 for _, sums in forward)
    assert all("bfloat16" in types for types, _ in products)
    assert {x.dtype for x in jax.tree.leaves((params, gradient(params)))} == {np.dtype("float32")}
    distribution, value = model(seen[0], _MASK)
    assert (value.dtype, distribution.probs.dtype) == (jnp.float32, jnp.float32)
    plain, plain_value = network(seen[0], _MASK)
    assert (value != plain_value) & (abs(value - plain_value) < 0.03)
    np.testing.assert_allclose(distribution.probs, plain.probs, atol=0.03)


@pytest.mark.parametrize("network", _NETWORKS)
def test_masks_stay_exact(network):
    model = to_bfloat16(network)
    seen = jax.random.normal(jax.random.key(1), (64, 4))
    distribution, _ = jax.jit(jax.vmap(model, (0, None)))(seen, _MASK)
    probs = jax.vmap(lambda d: d.probs)(distribution)
    np.testing.assert_array_equal(probs[:, ~_MASK], 0)
    np.testing.assert_allclose(probs.sum(axis=1), 1, rtol=1e-6)
    draws = jax.vmap(lambda d, k: d.sample(k))(
        distribution, jax.random.split(jax.random.key(2), 64)
    )
    assert _MASK[draws].all()

    # What leads to a forbidden action's logit is exactly as it was.
    grad = eqx.filter_jit(eqx.filter_grad(_loss))(model, seen)
    head = grad.network.actor[-1] if network is _MLP else grad.network.layer
    for rows in (head.weight, head.bias):
        np.testing.assert_array_equal(rows[:6][~_MASK], 0)
        assert (rows[:6][_MASK] != 0).all()

    only = jnp.arange(6) == 3
    alone = model(seen[0], only)[0]
    assert (alone.entropy(), alone.probs[3], alone.log_prob(jnp.int32(3))) == (0, 1, 0)


def test_equal_logits_are_equal_chances():
    network = eqx.tree_at(lambda m: m.actor[-1].weight, _MLP, jnp.zeros((6, 16)))
    distribution, _ = to_bfloat16(network)(jnp.ones(4), _MASK)
    np.testing.assert_allclose(distribution.entropy(), np.log(3), rtol=1e-6)
    np.testing.assert_allclose(distribution.probs[_MASK], 1 / 3, rtol=1e-6)


def test_statistics_and_features_are_not_rounded():
    far = jnp.full((2, 4), 1000.0) + jnp.array([[-1.0], [1.0]])
    model = to_bfloat16(add_normalization(_MLP, far))
    assert isinstance(model, NormalizedActorCritic)
    assert isinstance(model.network, BFloat16ActorCritic)
    assert to_bfloat16(model.network) is model.network
    model = eqx.tree_at(lambda m: m.moments[0].mean, model, jnp.full(4, 1000.0))
    # In bfloat16 999 and 1001 are the same number.
    np.testing.assert_allclose(
        model(far[1], _MASK)[1], to_bfloat16(_MLP)(jnp.ones(4), _MASK)[1], rtol=1e-6
    )


@pytest.mark.slow
@pytest.mark.parametrize(("env", "size"), [(CartPole(), 4), (MaskedLocks(), 1)])
def test_the_first_minibatch_meets_the_policy_that_acted(env, size):
    config = PPOConfig(
        num_envs=8,
        num_steps=32,
        learning_rate=1e-2,
        precision="bfloat16",
        normalize_observations=True,
    )
    vector_env = VectorEnv(env, 8)
    model = MLPActorCritic(size, env.num_actions, 16, 1, key=jax.random.key(0))
    state = ppo.init_learner(
        model, start_rollout(vector_env, model, jax.random.key(1)), config, jax.random.key(2)
    )
    assert isinstance(state.model.network, BFloat16ActorCritic)
    update = eqx.filter_jit(ppo.update)
    for _ in range(3):
        state, _, diagnostics = update(vector_env, config, state, jnp.int32(9))
        assert abs(diagnostics.approx_kl[0]) < 1e-8
        assert diagnostics.clip_frac[0] == 0
        assert (diagnostics.approx_kl[1:] > 0).all()
    floats = [x for x in jax.tree.leaves((state.model, state.opt_state)) if eqx.is_inexact_array(x)]
    assert {x.dtype for x in floats} == {np.dtype("float32")}
