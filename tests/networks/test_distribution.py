import distreqx.distributions as dist
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.networks import MaskedCategorical


def _random_case(seed, actions=28, dtype=jnp.float32):
    logits_key, mask_key = jax.random.split(jax.random.key(seed))
    logits = (3 * jax.random.normal(logits_key, (actions,))).astype(dtype)
    mask = jax.random.bernoulli(mask_key, 0.3, (actions,)).at[seed % actions].set(True)
    return logits, mask


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_forbidden_actions_have_no_probability_and_no_gradient(dtype):
    logits, mask = _random_case(0, dtype=dtype)
    action = jnp.argmax(mask)
    functions = {
        "log_prob": lambda x: MaskedCategorical(x, mask).log_prob(action),
        # A coefficient over 1 would turn the fill value into an infinity, and that into NaN.
        "entropy": lambda x: 100 * MaskedCategorical(x, mask).entropy(),
        "probs": lambda x: MaskedCategorical(x, mask).probs[action],
    }
    assert (MaskedCategorical(logits, mask).probs[~mask] == 0).all()
    for name, function in functions.items():
        reverse, forward = jax.jit(lambda x, f=function: (jax.grad(f)(x), jax.jacfwd(f)(x)))(logits)
        for gradient in (reverse, forward):
            assert jnp.isfinite(gradient).all(), name
            assert (gradient[~mask] == 0).all(), name
            assert (gradient[mask] != 0).any(), name
        np.testing.assert_allclose(
            forward.astype(jnp.float32), reverse.astype(jnp.float32), rtol=3e-2, atol=1e-3
        )


def test_equals_the_categorical_over_the_allowed_actions_alone():
    logits, mask = map(np.array, _random_case(1))

    @jax.jit
    def both(logits, mask, allowed):
        masked, plain = MaskedCategorical(logits, mask), dist.Categorical(logits=logits[allowed])
        log_probs = jax.vmap(masked.log_prob)(allowed)
        return (
            (masked.probs[allowed], log_probs, masked.entropy(), masked.mode()),
            (plain.probs, plain.logits, plain.entropy(), allowed[jnp.argmax(plain.logits)]),
        )

    for got, want in zip(*both(logits, mask, np.flatnonzero(mask)), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5)


@pytest.mark.parametrize("n", [1, 2, 5, 28])
def test_entropy_of_equal_actions_is_log_n(n):
    mask = jnp.arange(28) < n
    distribution = MaskedCategorical(jnp.full(28, 7.0), mask)
    np.testing.assert_allclose(distribution.entropy(), np.log(n), atol=1e-6)
    gradient = jax.grad(lambda x: MaskedCategorical(x, mask).entropy())(jnp.full(28, 7.0))
    np.testing.assert_allclose(gradient, 0, atol=1e-6)


def test_one_allowed_action_is_certain():
    mask = jnp.arange(28) == 11
    distribution = MaskedCategorical(jnp.linspace(-50, 50, 28), mask)
    assert distribution.entropy() == 0
    assert distribution.log_prob(jnp.int32(11)) == 0
    assert distribution.mode() == 11
    keys = jax.random.split(jax.random.key(0), 100)
    assert (jax.jit(jax.vmap(distribution.sample))(keys) == 11).all()


def test_samples_follow_the_probabilities():
    logits, mask = _random_case(2)
    distribution = MaskedCategorical(logits, mask)
    n = 200_000
    samples = jax.jit(jax.vmap(distribution.sample))(jax.random.split(jax.random.key(1), n))
    frequency = np.bincount(samples, minlength=28) / n
    deviation = np.sqrt(distribution.probs * (1 - distribution.probs) / n)
    assert (frequency[~mask] == 0).all()
    assert (np.abs(frequency - distribution.probs) <= 5 * deviation + 1e-7).all()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24, 1.0])
def test_no_rounding_draws_a_forbidden_action(uniform, monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", lambda key: jnp.float32(uniform))

    def draw(seed):
        key = jax.random.key(seed)
        logits = 20 * jax.random.normal(key, (300,))
        mask = jax.random.bernoulli(key, 0.05, (300,)).at[seed % 300].set(True)
        return mask[MaskedCategorical(logits, mask).sample(key)]

    assert jax.jit(jax.vmap(draw))(jnp.arange(2000)).all()


def test_actions_beyond_127_are_drawn_as_they_are():
    mask = jnp.arange(1000) == 900
    distribution = MaskedCategorical(jnp.zeros(1000), mask)
    for action in (distribution.sample(jax.random.key(0)), distribution.mode()):
        assert action.dtype == jnp.int32
        assert action == 900


def test_mode_is_allowed_even_where_logits_underflow():
    logits = jnp.full(5, -3.4e38)
    assert MaskedCategorical(logits, jnp.arange(5) >= 3).mode() == 3


def test_all_false_mask_is_an_error_that_says_so():
    with pytest.raises(ValueError, match="action mask is all False"):
        MaskedCategorical(jnp.zeros(3), jnp.zeros(3, bool))


@pytest.mark.parametrize("num_actions", [3, (1, 2)])
def test_another_number_of_logits_is_refused(num_actions):
    with pytest.raises(ValueError, match="there are 4 logits, and the mask is of 3 actions"):
        pm.networks.masked_distribution(jnp.zeros(4), jnp.ones(3, bool), num_actions)


@pytest.mark.parametrize("num_actions", [3, (1, 2)])
def test_a_policy_refuses_a_mask_that_allows_nothing(num_actions):
    policy = pm.Policy(pm.MLPActorCritic(2, num_actions, 4, key=jax.random.key(0)))
    mask = jnp.array([isinstance(num_actions, tuple), False, False])
    key, message = jax.random.key(1), "the action mask allows no action"
    for act in (policy, lambda *x: policy.act(*x, ()), lambda *x: policy.sample(*x, key)):
        with pytest.raises(ValueError, match=message):
            act(jnp.zeros(2), mask)
        act(jnp.zeros(2), jnp.ones(3, bool))
        jax.vmap(act)(jnp.zeros((1, 2)), mask[None])  # Nothing can be known in compiled code.


def test_a_policy_takes_arrays_of_numpy():
    policy = pm.Policy(pm.MLPActorCritic(2, 3, 4, key=jax.random.key(0)))
    mask = np.array([False, True, False])
    assert int(policy(np.zeros(2, np.float32), mask)) == 1
    assert int(policy.sample(np.zeros(2, np.float32), mask, jax.random.key(1))) == 1
