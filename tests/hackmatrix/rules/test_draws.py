"""A step's random numbers: uniform and independent, whatever keys are like."""

import itertools

import jax
import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from hackmatrix.rules.draws import Draws, Use

SEEDS = np.arange(20_000)
UNLIKELY = 1e-5  # for a good generator; there are dozens of comparisons
BOUNDS = (2, 3, 7, 36, 1_000, 1 << 22)
PLACES = ((Use.WARP, 0), (Use.WARP, 1), (Use.WARP, 2), (Use.POLY, 0), (Use.STAGE, 7))


def of_a_split(key):
    return jax.random.split(key)[0]


@pytest.fixture(
    scope="module",
    params=[("threefry2x32", None), ("threefry2x32", of_a_split), ("rbg", None)],
    ids=["keys", "split keys", "keys of four words"],
)
def drawn(request):
    """The draws of many seeds: some with a bound, some of other uses and numbers."""
    impl, change = request.param

    @jax.jit
    @jax.vmap
    def draw(seed):
        key = jax.random.key(seed, impl=impl)
        draws = Draws(change(key) if change else key)
        bounded = [draws.below(bound, Use.ORDER, 12_345) for bound in BOUNDS]
        return draws.words, bounded, [draws.below(8, *place) for place in PLACES]

    return jax.device_get(draw(SEEDS)), jax.device_get(draw(SEEDS[::-1]))


def table(first, second):
    return np.bincount(first * 8 + second, minlength=64).reshape(8, 8)


def test_every_value_below_the_bound_is_as_likely_and_no_other_comes(drawn):
    (words, bounded, _), again = drawn
    # Draws depend on the seed, not on the place in a batch.
    same = lambda one, other: np.testing.assert_array_equal(one, other[::-1])  # noqa: E731
    jax.tree.map(same, drawn[0], again)
    for bound, values in zip(BOUNDS, bounded, strict=True):
        assert values.min() >= 0
        assert values.max() < bound
        if bound <= 36:
            assert chisquare(np.bincount(values, minlength=bound)).pvalue > UNLIKELY
    assert len(np.unique(words, axis=0)) == len(words)


def test_neighboring_seeds_uses_and_numbers_have_draws_of_their_own(drawn):
    values = drawn[0][2]
    for one in values:
        assert chisquare(np.bincount(one, minlength=8)).pvalue > UNLIKELY
    for distance in (1, 2, 256, 4096):
        pairs = table(values[0][:-distance], values[0][distance:])
        assert chi2_contingency(pairs).pvalue > UNLIKELY
    for first, second in itertools.combinations(values, 2):
        assert chi2_contingency(table(first, second)).pvalue > UNLIKELY


def test_each_bit_of_a_key_turns_each_bit_of_both_words_half_the_time():
    keys = np.random.default_rng(0).integers(1 << 32, size=(2_000, 2), dtype=np.uint32)
    words = jax.jit(jax.vmap(lambda key: Draws(jax.random.wrap_key_data(key)).words))
    bits = np.arange(32, dtype=np.uint32)
    before = np.asarray(words(keys))
    for place, bit in itertools.product(range(2), bits):
        other = keys.copy()
        other[:, place] ^= np.uint32(1) << bit
        turned = before ^ np.asarray(words(other))
        share = (turned[..., None] >> bits & 1).mean(0)
        assert np.abs(share - 0.5).max() < 0.06, (place, bit)


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_draws_of_several_keys_at_once_are_those_of_each(impl):
    keys = jax.random.split(jax.random.key(0, impl=impl), 3)
    one = jax.jit(lambda key: Draws(key).words)
    for key, draws in zip(keys, Draws.of_each(*keys), strict=True):
        np.testing.assert_array_equal(draws.words, one(key))
