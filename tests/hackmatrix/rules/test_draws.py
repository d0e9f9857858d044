"""A step's random numbers: uniform and independent, whatever keys are like."""

import itertools
from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import chi2_contingency, chisquare

from hackmatrix.rules.draws import Draws, Use

SEEDS = np.arange(20_000)
UNLIKELY = 1e-5  # for a good generator; there are dozens of tests


@jax.jit
@jax.vmap
def of_a_seed(seed: jax.Array) -> Draws:
    return Draws(jax.random.key(seed))


@jax.jit
@jax.vmap
def of_a_split(seed: jax.Array) -> Draws:
    return Draws(jax.random.split(jax.random.key(seed))[0])


@jax.jit
@jax.vmap
def of_four_words(seed: jax.Array) -> Draws:
    return Draws(jax.random.key(seed, impl="rbg"))


KEYS = [of_a_seed, of_a_split, of_four_words]


def table(first: np.ndarray, second: np.ndarray, size: int) -> np.ndarray:
    return np.bincount(first * size + second, minlength=size * size).reshape(size, size)


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("bound", [2, 3, 7, 36])
@pytest.mark.parametrize(("use", "number"), [(Use.WARP, 0), (Use.CORNER, 0), (Use.ORDER, 12_345)])
def test_every_value_is_as_likely(
    keys: Callable[..., Draws], bound: int, use: Use, number: int
) -> None:
    values = np.array(jax.vmap(lambda d: d.below(bound, use, number))(keys(SEEDS)))
    assert values.min() == 0
    assert values.max() == bound - 1
    assert chisquare(np.bincount(values)).pvalue > UNLIKELY


@pytest.mark.parametrize("keys", KEYS)
def test_seeds_beside_each_other_have_draws_of_their_own(keys: Callable[..., Draws]) -> None:
    values = np.array(jax.vmap(lambda d: d.below(8, Use.EXIT))(keys(SEEDS)))
    for distance in (1, 2, 256, 4096):
        pairs = table(values[:-distance], values[distance:], 8)
        assert chi2_contingency(pairs).pvalue > UNLIKELY


@pytest.mark.parametrize("keys", KEYS)
def test_uses_and_numbers_of_one_key_have_draws_of_their_own(keys: Callable[..., Draws]) -> None:
    draws = keys(SEEDS)
    places = [(Use.WARP, 0), (Use.WARP, 1), (Use.WARP, 2), (Use.POLY, 0), (Use.STAGE, 7)]
    values = [np.array(jax.vmap(lambda d, p=p: d.below(8, *p))(draws)) for p in places]
    for first, second in itertools.combinations(values, 2):
        assert chi2_contingency(table(first, second, 8)).pvalue > UNLIKELY


def test_each_bit_of_a_key_turns_each_bit_of_both_words_half_the_time() -> None:
    keys = jax.random.bits(jax.random.key(0), (4_000, 2), jnp.uint32)
    words = jax.jit(jax.vmap(lambda key: Draws(jax.random.wrap_key_data(key)).words))
    bits = np.arange(32, dtype=np.uint32)
    for place, bit in itertools.product(range(2), bits):
        turned = words(keys) ^ words(keys.at[:, place].set(keys[:, place] ^ (1 << bit)))
        share = (np.array(turned)[..., None] >> bits & 1).mean(0)
        assert np.abs(share - 0.5).max() < 0.05, (place, bit)


def test_no_two_keys_have_the_same_words() -> None:
    words = np.array(of_a_seed(np.arange(200_000)).words)
    assert len(np.unique(words, axis=0)) == len(words)


def test_a_key_has_the_same_draws_again_and_never_one_that_is_not_below_the_bound() -> None:
    draws = of_a_seed(SEEDS)
    again = of_a_seed(SEEDS)
    for bound in (1, 5, 1_000, 1 << 22):
        drawn = [
            np.array(jax.vmap(lambda d, b=bound: d.below(b, Use.AMOUNT))(d)) for d in (draws, again)
        ]
        assert (drawn[0] == drawn[1]).all()
        assert ((drawn[0] >= 0) & (drawn[0] < bound)).all()


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg"])
def test_draws_of_several_keys_at_once_are_those_of_each(impl: str) -> None:
    keys = jax.random.split(jax.random.key(0, impl=impl), 3)
    for key, draws in zip(keys, Draws.of_each(*keys), strict=True):
        np.testing.assert_array_equal(draws.words, Draws(key).words)
