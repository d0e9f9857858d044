"""Several choices at once: each joint action as itertools counts them, and the cost of many."""

import itertools
import math

import jax
import jax.extend
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, strategies as st

from ppo_mask.envs.actions import (
    allows_action,
    as_action,
    count_allowed,
    describe_actions,
    split_parts,
)
from ppo_mask.networks import MaskedCategorical, MaskedMultiCategorical, masked_distribution

SIZES = [(3,), (2, 2), (3, 1, 2), (2, 3, 3, 2)]
"""Alone, equal, all different, and equal ones between others: each is another program."""


@st.composite
def cases(draw):
    sizes = draw(st.sampled_from(SIZES))
    allowed = [draw(st.lists(st.booleans(), min_size=n, max_size=n).filter(any)) for n in sizes]
    logits = draw(
        st.lists(
            st.floats(-20, 20, width=32), min_size=sum(sizes), max_size=sum(sizes), unique=True
        )
    )
    return sizes, np.array(logits, np.float32), np.concatenate(allowed)


def by_hand(sizes, logits, mask):
    """The probability of each joint action, in float64."""
    starts = np.cumsum([0, *sizes])[:-1]
    parts = []
    for start, n in zip(starts, sizes, strict=True):
        x = np.where(mask[start : start + n], logits[start : start + n].astype(float), -np.inf)
        e = np.exp(x - x.max())
        parts.append(e / e.sum())
    joint = {
        action: math.prod(p[a] for p, a in zip(parts, action, strict=True))
        for action in itertools.product(*map(range, sizes))
    }
    return joint, np.concatenate(parts)


def whole(sizes):
    """All that a distribution says, compiled: of every joint action, and of a key."""
    actions = jnp.array(list(itertools.product(*map(range, sizes))), jnp.int32)

    @jax.jit
    def of(logits, mask):
        distribution = MaskedMultiCategorical(logits, mask, sizes)
        log_probs = jax.vmap(distribution.log_prob)(actions)
        samples = jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 50))

        def of_logits(logits):
            distribution = MaskedMultiCategorical(logits, mask, sizes)
            return jnp.stack([distribution.log_prob(distribution.mode()), distribution.entropy()])

        gradients = jax.jacrev(of_logits)(logits)
        return (
            log_probs, distribution.probs, distribution.entropy(), distribution.mode(), samples,
            gradients,
        )  # fmt: skip

    return of


WHOLE = {sizes: whole(sizes) for sizes in SIZES}


@pytest.mark.slow
@given(cases())
def test_each_joint_action_is_as_counted_by_hand(case):
    sizes, logits, mask = case
    joint, flat = by_hand(*case)
    log_probs, probs, entropy, mode, samples, gradients = map(
        np.asarray, WHOLE[sizes](logits, mask)
    )
    np.testing.assert_allclose(np.exp(log_probs), list(joint.values()), rtol=2e-5, atol=1e-30)
    np.testing.assert_allclose(probs, flat, rtol=2e-5, atol=1e-30)
    assert (probs[~mask] == 0).all()
    assert np.isfinite(log_probs).all()
    assert (np.exp(log_probs)[np.array(list(joint.values())) == 0] == 0).all()
    wanted = -sum(p * math.log(p) for p in joint.values() if p > 0)
    np.testing.assert_allclose(entropy, wanted, rtol=1e-4, atol=1e-5)
    # Of actions that differ by less than a float32 can say, either is.
    assert joint[tuple(mode.tolist())] == pytest.approx(max(joint.values()), rel=1e-5)
    assert mode.dtype == samples.dtype == np.int32
    starts = np.cumsum([0, *sizes])[:-1]
    assert mask[samples + starts].all()
    assert (gradients[:, ~mask] == 0).all()
    assert np.isfinite(gradients).all()
    # Of the mode's log-probability: 1 for what is chosen, less the probability.
    chosen = np.zeros(len(mask))
    chosen[mode + starts] = 1
    np.testing.assert_allclose(gradients[0], np.where(mask, chosen - flat, 0), atol=1e-5)


@pytest.mark.slow
def test_of_one_part_it_is_a_masked_categorical():
    logits = jax.random.normal(jax.random.key(0), (300,))
    mask = jax.random.bernoulli(jax.random.key(1), 0.3, (300,))
    one, several = MaskedCategorical(logits, mask), MaskedMultiCategorical(logits, mask, (300,))
    np.testing.assert_array_equal(one.probs, several.probs)
    assert one.entropy() == several.entropy()
    assert several.mode().tolist() == [one.mode()]
    for action in range(300):
        log_prob = several.log_prob(jnp.array([action]))
        assert log_prob == one.log_prob(action)
    for seed in range(20):
        key = jax.random.key(seed)
        (part,) = several.sample(key)
        assert part == one.sample(jax.random.split(key, 1)[0])


def test_parts_are_drawn_independently_by_their_probabilities():
    sizes, n = (3, 3, 2), 100_000
    logits = jax.random.normal(jax.random.key(0), (8,))
    mask = jnp.array([True, True, True, True, False, True, True, True])
    distribution = MaskedMultiCategorical(logits, mask, sizes)
    joint, _ = by_hand(sizes, np.asarray(logits), np.asarray(mask))
    samples = jax.jit(jax.vmap(distribution.sample))(jax.random.split(jax.random.key(1), n))
    numbers = np.ravel_multi_index(np.asarray(samples).T, sizes)
    frequency = np.bincount(numbers, minlength=18) / n
    p = np.array(list(joint.values()))
    assert (np.abs(frequency - p) <= 5 * np.sqrt(p * (1 - p) / n)).all()


def test_all_is_float32_whatever_the_logits_are():
    distribution = MaskedMultiCategorical(jnp.zeros(5, jnp.bfloat16), jnp.ones(5, bool), (2, 3))
    for number in (
        distribution.probs,
        distribution.entropy(),
        distribution.log_prob(np.zeros(2, int)),
    ):
        assert number.dtype == jnp.float32


def test_a_wrong_mask_or_action_is_one_line_that_names_the_part():
    logits = jnp.zeros(8)
    mask = jnp.array([True, False, True, True, False, False, False, False])
    for sizes, part in [((2, 2, 4), 2), ((2, 2, 2, 2), 2), ((1, 1, 6), 1), ((4, 4), 1)]:
        with pytest.raises(ValueError, match=f"all False in part {part} of {len(sizes)}"):
            MaskedMultiCategorical(logits, mask, sizes)
    with pytest.raises(ValueError, match=r"bool\[8\], not bool\[7\]: there are 3 x 4 actions"):
        MaskedMultiCategorical(logits, mask, (3, 4))
    with pytest.raises(ValueError, match=r"at least 1 action, got \(8, 0\)"):
        MaskedMultiCategorical(logits, mask, (8, 0))
    with pytest.raises(ValueError, match="action has 3 parts; there are 3 x 5 actions"):
        MaskedMultiCategorical(logits, jnp.ones(8, bool), (3, 5)).log_prob(jnp.zeros(3, int))


def test_the_right_distribution_is_made():
    logits, mask = jnp.zeros(5), jnp.ones(5, bool)
    assert type(masked_distribution(logits, mask, 5)) is MaskedCategorical
    assert type(masked_distribution(logits, mask, (5,))) is MaskedMultiCategorical


@pytest.mark.parametrize(
    "sizes", [(20_000,), (10_000, 10_000), (2,) * 50 + (19_900,), (100,) * 200]
)
def test_memory_grows_with_the_number_of_actions_and_no_faster(sizes):
    """No array is larger than rows x actions, however the actions are parted."""

    def loss(logits, mask, action, key):
        distribution = MaskedMultiCategorical(logits, mask, sizes)
        drawn = distribution.sample(key) + distribution.mode()
        return distribution.log_prob(action) + distribution.entropy(), drawn

    rows = 4
    total = sum(sizes)
    arguments = (
        jax.ShapeDtypeStruct((rows, total), jnp.float32),
        jax.ShapeDtypeStruct((rows, total), jnp.bool_),
        jax.ShapeDtypeStruct((rows, len(sizes)), jnp.int32),
        jax.eval_shape(lambda: jax.random.split(jax.random.key(0), rows)),
    )
    program = jax.vmap(jax.grad(loss, has_aux=True))
    largest = max(size_of_largest(jax.make_jaxpr(program)(*arguments).jaxpr))
    assert largest == rows * total
    memory = jax.jit(program).lower(*arguments).compile().memory_analysis()
    assert memory.temp_size_in_bytes < 30 * 4 * rows * total


def size_of_largest(jaxpr):
    """The sizes of all that a program computes, inside its inner programs too."""
    for equation in jaxpr.eqns:
        yield from (math.prod(x.aval.shape) for x in equation.outvars)
        for inner in jax.extend.core.jaxprs_in_params(equation.params):
            yield from size_of_largest(inner)


def test_masks_are_counted_by_part():
    mask = jnp.array([[1, 0, 1, 1, 1], [1, 1, 0, 0, 0]], bool)
    np.testing.assert_array_equal(count_allowed(mask, 5), [4, 2])
    np.testing.assert_array_equal(count_allowed(mask, (2, 3)), [[1, 3], [2, 0]])
    np.testing.assert_array_equal(allows_action(mask, 5), [True, True])
    np.testing.assert_array_equal(allows_action(mask, (2, 3)), [True, False])
    parts = [(parts, x.tolist()) for parts, x in split_parts(np.arange(8), (1, 2, 2, 3))]
    assert parts == [
        (slice(0, 1), [[0]]), (slice(1, 3), [[1, 2], [3, 4]]), (slice(3, 4), [[5, 6, 7]])
    ]  # fmt: skip


def test_an_action_is_one_number_for_each_part():
    for action in ([1, 2], np.array([1, 2], np.uint8), jnp.array([1, 2])):
        array = as_action(action, (3, 5))
        assert array.dtype == jnp.int32
        assert array.tolist() == [1, 2]
    for action in (1, [1.0, 2.0], [1], [[1, 2]], jnp.zeros(3, int)):
        with pytest.raises(
            ValueError, match=r"^action is .*, not int32\[2\]: one of each part of 3 x 5"
        ):
            as_action(action, (3, 5))


def test_actions_in_words():
    assert describe_actions((4,)) == "1 choice of 4 actions"
    assert describe_actions((2, 3, 4, 5, 6)) == "5 choices of 2 to 6 actions"
