"""Masked distributions, of one choice or of several, as NumPy computes them in float64."""

import itertools
import math
from functools import cache, reduce
from unittest.mock import Mock

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.networks import MaskedCategorical, MaskedMultiCategorical, masked_distribution

CASES = 300
KINDS = [
    (28, jnp.float32),
    (28, jnp.bfloat16),
    ((3, 1, 2), jnp.float32),
    ((2, 3, 3, 2), jnp.bfloat16),
]
"""One choice; several: all different, and equal ones between others."""


def parts_of(sizes):
    return (sizes,) if isinstance(sizes, int) else sizes


def starts_of(sizes):
    return np.cumsum([0, *parts_of(sizes)])[:-1]


def joint_actions(sizes):
    return np.array(list(itertools.product(*map(range, parts_of(sizes)))))


@cache
def said(sizes, dtype):
    """All that a distribution says of many logits and masks, compiled once."""
    actions = jnp.asarray(joint_actions(sizes), jnp.int32)
    actions = actions[:, 0] if isinstance(sizes, int) else actions

    def of_one(logits, mask):
        distribution = masked_distribution(logits, mask, sizes)
        mode = distribution.mode()

        def numbers(logits):
            distribution = masked_distribution(logits, mask, sizes)
            # A coefficient over 1 would turn the fill value into an infinity, and that into NaN.
            return jnp.stack([distribution.log_prob(mode), 100 * distribution.entropy()])

        return {
            "log_probs": jax.vmap(distribution.log_prob)(actions),
            "probs": distribution.probs,
            "entropy": distribution.entropy(),
            "mode": mode.reshape(-1),
            "samples": jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 20)),
            "reverse": jax.jacrev(numbers)(logits),
            "forward": jax.jacfwd(numbers)(logits),
        }

    rng = np.random.default_rng(0)
    parts = parts_of(sizes)
    logits = rng.normal(size=(CASES, sum(parts))) * rng.uniform(0, 10, (CASES, 1))
    logits[:10] = 7.0
    mask = rng.random(logits.shape) < rng.uniform(0, 1, (CASES, 1))
    for start, n in zip(starts_of(sizes), parts, strict=True):
        mask[np.arange(CASES), start + rng.integers(0, n, CASES)] = True
    logits = jnp.asarray(logits, dtype)
    found = jax.jit(jax.vmap(of_one))(logits, mask)
    return np.asarray(logits, np.float64), mask, jax.tree.map(np.asarray, found)


def by_hand(sizes, logits, mask):
    """Probabilities of each part, the entropies of the parts, and of each joint action."""
    starts, parts = starts_of(sizes), parts_of(sizes)
    x = np.where(mask, logits, -np.inf)
    x = [x[..., start : start + n] for start, n in zip(starts, parts, strict=True)]
    x = [np.exp(each - each.max(-1, keepdims=True)) for each in x]
    probs = [each / each.sum(-1, keepdims=True) for each in x]
    surprise = [-np.log(np.where(each > 0, each, 1)) for each in probs]
    entropies = [(p * s).sum(-1, keepdims=True) for p, s in zip(probs, surprise, strict=True)]
    outer = [each.reshape(-1, *(n if i == k else 1 for i, n in enumerate(parts)))
             for k, each in enumerate(probs)]  # fmt: skip
    joint = reduce(np.multiply, outer).reshape(len(logits), -1)
    slopes = [p * (s - e) for p, s, e in zip(probs, surprise, entropies, strict=True)]
    return np.concatenate(probs, -1), joint, sum(entropies)[:, 0], np.concatenate(slopes, -1)


@pytest.mark.parametrize(("sizes", "dtype"), KINDS)
def test_all_that_is_said_is_as_computed_by_hand(sizes, dtype):
    logits, mask, found = said(sizes, dtype)
    probs, joint, entropy, _ = by_hand(sizes, logits, mask)
    np.testing.assert_allclose(np.exp(found["log_probs"]), joint, rtol=2e-5, atol=1e-30)
    assert np.isfinite(found["log_probs"]).all()
    assert (np.exp(found["log_probs"])[joint == 0] == 0).all()
    np.testing.assert_allclose(found["probs"], probs, rtol=2e-5, atol=1e-30)
    assert (found["probs"][~mask] == 0).all()
    np.testing.assert_allclose(found["entropy"], entropy, rtol=1e-4, atol=1e-5)
    certain = mask.sum(-1) == len(parts_of(sizes))
    assert certain.any()
    assert (found["entropy"][certain] == 0).all()
    assert {found[name].dtype.name for name in ("log_probs", "probs", "entropy")} == {"float32"}
    assert found["mode"].dtype == found["samples"].dtype == np.int32
    # Of actions that differ by less than a float32 can say, either is the mode.
    mode = np.ravel_multi_index(found["mode"].T, parts_of(sizes))
    np.testing.assert_allclose(joint[np.arange(CASES), mode], joint.max(-1), rtol=1e-5)
    drawn = starts_of(sizes) + found["samples"].reshape(CASES, 20, -1)
    assert np.take_along_axis(mask, drawn.reshape(CASES, -1), -1).all()


@pytest.mark.parametrize(("sizes", "dtype"), KINDS)
def test_forbidden_actions_have_no_gradient_and_allowed_ones_the_right_one(sizes, dtype):
    logits, mask, found = said(sizes, dtype)
    probs, _, _, slopes = by_hand(sizes, logits, mask)
    chosen = np.zeros_like(probs)
    np.put_along_axis(chosen, starts_of(sizes) + found["mode"], 1, -1)
    wanted = np.stack([np.where(mask, chosen - probs, 0), 100 * slopes], 1)
    for name in ("reverse", "forward"):
        gradient = np.float64(found[name])
        assert np.isfinite(gradient).all(), name
        assert (gradient.swapaxes(1, 2)[~mask] == 0).all(), name
        exact = dtype == jnp.float32
        np.testing.assert_allclose(
            gradient, wanted, rtol=1e-4 if exact else 2e-2, atol=2e-3 if exact else 5e-2
        )


@pytest.mark.parametrize("sizes", [28, (3, 3, 2)])
def test_samples_follow_the_probabilities_and_parts_are_independent(sizes):
    rng, n = np.random.default_rng(2), 100_000
    logits = 2 * rng.normal(size=(1, sum(parts_of(sizes))))
    mask = np.arange(logits.size)[None] != 4
    _, joint, _, _ = by_hand(sizes, logits, mask)

    @jax.jit
    def draw(logits, mask):
        keys = jax.random.split(jax.random.key(1), n)
        return jax.vmap(masked_distribution(logits, mask, sizes).sample)(keys)

    samples = np.asarray(draw(jnp.float32(logits[0]), mask[0])).reshape(n, -1)
    numbers = np.ravel_multi_index(samples.T, parts_of(sizes))
    frequency = np.bincount(numbers, minlength=joint.size) / n
    assert (frequency[joint[0] == 0] == 0).all()
    deviation = np.sqrt(joint[0] * (1 - joint[0]) / n)
    assert (np.abs(frequency - joint[0]) <= 5 * deviation + 1e-6).all()


@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-24, 1.0])
def test_no_rounding_draws_a_forbidden_action(uniform, monkeypatch):
    monkeypatch.setattr(jax.random, "uniform", drawn := Mock(return_value=jnp.float32(uniform)))
    rng = np.random.default_rng(0)
    logits = jnp.float32(20 * rng.normal(size=(2000, 300)))
    mask = rng.random(logits.shape) < 0.05
    mask[np.arange(2000), np.arange(2000) % 300] = True
    key = jax.random.key(0)
    draw = jax.vmap(lambda logits, mask: mask[MaskedCategorical(logits, mask).sample(key)])
    assert jax.jit(draw)(logits, mask).all()
    assert drawn.called


def test_actions_beyond_127_are_what_they_are_even_where_logits_underflow():
    @jax.jit
    def draw(mask):
        distribution = MaskedCategorical(jnp.full(1000, -3.4e38), mask)
        return distribution.sample(jax.random.key(0)), distribution.mode()

    assert draw(np.arange(1000) == 900) == (900, 900)
    assert draw(np.arange(1000) >= 997)[1] == 997


def test_a_wrong_mask_or_action_is_one_line_that_names_the_part():
    logits = jnp.zeros(8)
    mask = jnp.array([True, False, True, True, False, False, False, False])
    for sizes, part in [((2, 2, 4), 2), ((2, 2, 2, 2), 2), ((1, 1, 6), 1), ((4, 4), 1)]:
        with pytest.raises(ValueError, match=f"all False in part {part} of {len(sizes)}"):
            MaskedMultiCategorical(logits, mask, sizes)
    with pytest.raises(ValueError, match="action mask is all False"):
        MaskedCategorical(logits, jnp.zeros(8, bool))
    with pytest.raises(ValueError, match=r"bool\[8\], not bool\[7\]: there are 3 x 4 actions"):
        MaskedMultiCategorical(logits, mask, (3, 4))
    with pytest.raises(ValueError, match=r"at least 1 action, got \(8, 0\)"):
        MaskedMultiCategorical(logits, mask, (8, 0))
    with pytest.raises(ValueError, match="action has 3 parts; there are 3 x 5 actions"):
        MaskedMultiCategorical(logits, jnp.ones(8, bool), (3, 5)).log_prob(jnp.zeros(3, int))
    for num_actions in (8, (3, 5)):
        with pytest.raises(ValueError, match="there are 9 logits, and the mask is of 8 actions"):
            masked_distribution(jnp.zeros(9), jnp.ones(8, bool), num_actions)


def test_the_right_distribution_is_made():
    logits, mask = jnp.zeros(5), jnp.ones(5, bool)
    assert type(masked_distribution(logits, mask, 5)) is MaskedCategorical
    assert type(masked_distribution(logits, mask, (5,))) is MaskedMultiCategorical


@pytest.mark.parametrize("sizes", [(10_000, 10_000), (2,) * 50 + (19_900,)])
def test_memory_grows_with_the_number_of_actions_and_no_faster(sizes):
    """No array is larger than rows x actions, however the actions are parted."""

    def loss(logits, mask, action, key):
        distribution = MaskedMultiCategorical(logits, mask, sizes)
        drawn = distribution.sample(key) + distribution.mode()
        return distribution.log_prob(action) + distribution.entropy(), drawn

    rows, total = 4, sum(sizes)
    arguments = (
        jax.ShapeDtypeStruct((rows, total), jnp.float32),
        jax.ShapeDtypeStruct((rows, total), jnp.bool_),
        jax.ShapeDtypeStruct((rows, len(sizes)), jnp.int32),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), rows)),
    )
    program = jax.vmap(jax.grad(loss, has_aux=True))
    assert max(all_sizes(jax.make_jaxpr(program)(*arguments).jaxpr)) == rows * total


def all_sizes(jaxpr):
    """The sizes of all that a program computes, inside its inner programs too."""
    for equation in jaxpr.eqns:
        yield from (math.prod(x.aval.shape) for x in equation.outvars)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from all_sizes(inner)


@pytest.mark.parametrize(("sizes", "dtype"), KINDS)
def test_the_divergence_is_as_computed_by_hand(sizes, dtype):
    """Of all joint actions; its gradient is 0 where an action is forbidden, and finite."""
    rng = np.random.default_rng(3)
    length = sum(parts_of(sizes))
    one, other = (jnp.asarray(rng.normal(scale=3, size=(50, length)), dtype) for _ in range(2))
    mask = rng.random((50, length)) < 0.6
    mask[:, starts_of(sizes)] = True

    def divergence(one, other, mask):
        return masked_distribution(one, mask, sizes).kl(masked_distribution(other, mask, sizes))

    value = jax.jit(jax.vmap(divergence))(one, other, mask)
    for n in range(50):
        expected, at = 0.0, 0
        for size in parts_of(sizes):
            here = np.arange(at, at + size)[mask[n, at : at + size]]
            logs = [np.float64(x[n])[here] for x in (one, other)]
            logs = [x - np.log(np.exp(x - x.max()).sum()) - x.max() for x in logs]
            expected += (np.exp(logs[0]) * (logs[0] - logs[1])).sum()
            at += size
        np.testing.assert_allclose(value[n], expected, rtol=1e-4, atol=1e-5)
    gradients = jax.jit(jax.vmap(jax.grad(divergence, (0, 1))))(one, other, mask)
    for gradient in gradients:
        assert np.isfinite(np.float64(gradient)).all()
        assert (np.float64(gradient)[~mask] == 0).all()
    same = jax.jit(jax.vmap(divergence))(one, one, mask)
    np.testing.assert_allclose(same, 0, atol=1e-6)
