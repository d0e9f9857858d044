"""Parts whose masks, and logits, depend on earlier parts, as NumPy enumerates them in float64."""

import itertools
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.envs.actions import Actions
from ppo_mask.networks import MaskedMultiCategorical

SIZES = (3, 2, 4)
STARTS = np.array(Actions.of(SIZES).starts)
JOINT = np.array(list(itertools.product(*map(range, SIZES))), np.int32)
"""All combinations of choices."""


def some_masks(rng, *shape):
    """Random masks that allow something."""
    masks = rng.random(shape) < 0.5
    np.put_along_axis(masks, rng.integers(0, shape[-1], (*shape[:-1], 1)), True, -1)
    return masks


RNG = np.random.default_rng(0)
TABLES = [some_masks(RNG, *SIZES[: k + 1]) for k in range(3)]
"""The mask of each part, by the choices before it."""
LOGITS, LINKS = RNG.normal(size=9), RNG.normal(size=(2, 9, 3))


def part_mask(prefix, k):
    assert prefix.shape == (k,)
    return jnp.asarray(TABLES[k])[tuple(prefix)]


def path_of(action):
    return np.concatenate([TABLES[k][tuple(action[:k])] for k in range(3)])


PATHS = np.array([path_of(action) for action in JOINT])
START = np.concatenate([TABLES[0], np.ones(6, bool)])
"""The mask of a timestep: that of part 0, and all of the later parts."""


def by_hand(logits, links):
    """The probability of each combination, and the entropy along its path, in float64."""
    probs, entropies = [], []
    links = links[0] @ links[1].T
    for action in JOINT:
        prob, entropy = 1.0, 0.0
        for k, (start, size) in enumerate(zip(STARTS, SIZES, strict=True)):
            mask = TABLES[k][tuple(action[:k])]
            row = logits[start : start + size].copy()
            for j in range(k):
                row += links[start : start + size, STARTS[j] + action[j]]
            x = np.where(mask, np.exp(row), 0)
            x /= x.sum()
            prob *= x[action[k]]
            entropy -= (x[x > 0] * np.log(x[x > 0])).sum()
        probs.append(prob)
        entropies.append(entropy)
    return np.array(probs), np.array(entropies)


def slopes(function, numbers):
    """The gradients of numbers, by central differences."""
    gradients = np.zeros((len(function(numbers)), numbers.size))
    for i in range(numbers.size):
        step = np.zeros(numbers.size)
        step[i] = 1e-5
        step = step.reshape(numbers.shape)
        gradients[:, i] = (function(numbers + step) - function(numbers - step)) / 2e-5
    return gradients


def distributions(logits, links):
    """That of each combination, made with the masks along its path as in learning."""

    def one(action, mask):
        return MaskedMultiCategorical(logits, mask, SIZES, tuple(links)).given(action)

    return jax.vmap(one)(jnp.asarray(JOINT), jnp.asarray(PATHS))


@jax.jit
def said(logits, links):
    def log_probs(logits, links):
        return jax.vmap(lambda d, a: d.log_prob(a))(distributions(logits, links), jnp.array(JOINT))

    def entropies(logits, links):
        return jax.vmap(lambda d: d.entropy())(distributions(logits, links))

    def jacobian(function):
        both = jax.jacrev(function, (0, 1))(logits, links)
        return jnp.concatenate([x.reshape(len(JOINT), -1) for x in both], 1)

    arguments = logits, links
    first = MaskedMultiCategorical(logits, jnp.asarray(START), SIZES, tuple(links))
    numbers = jax.random.uniform(jax.random.key(0), (4000, 3))
    sampled, along = jax.vmap(partial(first.choose, part_mask))(numbers)
    again = jax.vmap(
        lambda a, m: MaskedMultiCategorical(logits, m, SIZES, tuple(links)).log_prob(a)
    )
    return {
        "log_probs": log_probs(*arguments),
        "entropies": entropies(*arguments),
        "slopes": jacobian(log_probs),
        "entropy_slopes": jacobian(entropies),
        "mode": first.choose(part_mask)[0],
        "sampled": sampled,
        "paths": along.mask,
        "acted": jax.vmap(lambda d, a: d.log_prob(a))(along, sampled),
        "learned": again(sampled, along.mask),
    }


def test_all_that_is_said_is_as_enumerated():
    found = jax.tree.map(np.asarray, said(jnp.float32(LOGITS), jnp.float32(LINKS)))
    probs, entropies = by_hand(LOGITS, LINKS)
    np.testing.assert_allclose(probs.sum(), 1)
    np.testing.assert_allclose(np.exp(found["log_probs"]), probs, rtol=2e-5)
    forbidden = ~np.take_along_axis(PATHS, STARTS + JOINT, 1).all(1)
    assert forbidden.sum() > 8
    assert (np.exp(found["log_probs"][forbidden]) == 0).all()
    np.testing.assert_allclose(found["entropies"], entropies, rtol=1e-4, atol=1e-5)

    # The mode is greedy: the likeliest choice of each part after those before it.
    mode, left = found["mode"], np.arange(len(JOINT))
    for k, size in enumerate(SIZES):
        shares = [probs[left][JOINT[left, k] == n].sum() for n in range(size)]
        assert mode[k] == np.argmax(shares)
        left = left[JOINT[left, k] == mode[k]]

    numbers = np.ravel_multi_index(found["sampled"].T, SIZES)
    shares = np.bincount(numbers, minlength=len(JOINT)) / len(numbers)
    assert (shares[forbidden] == 0).all()
    np.testing.assert_allclose(shares, probs, atol=4 * 0.5 / np.sqrt(len(numbers)))
    np.testing.assert_array_equal(found["paths"], PATHS[numbers])
    np.testing.assert_array_equal(found["acted"], found["learned"])


def test_the_gradients_are_those_of_the_enumeration():
    found = jax.tree.map(np.asarray, said(jnp.float32(LOGITS), jnp.float32(LINKS)))
    both, cut = np.concatenate([LOGITS, LINKS.reshape(-1)]), LOGITS.size

    def of(numbers):
        return by_hand(numbers[:cut], numbers[cut:].reshape(LINKS.shape))

    probs, entropies = of(both)
    allowed = probs > 0
    wanted = slopes(lambda x: np.log(np.maximum(of(x)[0], 1e-300)), both)
    np.testing.assert_allclose(found["slopes"][allowed], wanted[allowed], atol=1e-4)
    # Of forbidden choices, logits of the first part, and choices of the last, nothing is learned.
    of_links = found["slopes"][:, cut:].reshape(-1, 2, 9, 3)
    assert (of_links[:, 0, :3] == 0).all()
    assert (of_links[:, 1, 5:] == 0).all()
    assert (found["slopes"][:, :cut][~PATHS & allowed[:, None]] == 0).all()

    # The entropy along a path is right on average; its gradient lacks the score's term.
    exact = -(probs[allowed] * np.log(probs[allowed])).sum()
    np.testing.assert_allclose((probs * found["entropies"]).sum(), exact, rtol=1e-5)
    [whole] = slopes(lambda x: np.array([(lambda p, e: (p * e).sum())(*of(x))]), both)
    mean = (probs[:, None] * found["entropy_slopes"]).sum(0)
    score = (slopes(lambda x: of(x)[0], both) * entropies[:, None]).sum(0)
    assert np.abs(mean - whole).max() > 0.05
    np.testing.assert_allclose(mean + score, whole, atol=1e-4)


def test_logits_alone_may_depend_on_earlier_choices():
    """Without a ``part_mask``, the parts' masks are those of the distribution."""
    mask = jnp.concatenate([TABLES[0], TABLES[1][0], TABLES[2][0, 0]])
    distribution = MaskedMultiCategorical(
        jnp.float32(LOGITS), mask, SIZES, tuple(jnp.float32(LINKS))
    )

    @jax.jit
    def seen():
        actions = jax.vmap(distribution.sample)(jax.random.split(jax.random.key(0), 50))
        mode, along = distribution.choose(lambda prefix, k: None)
        both = along.log_prob(mode), distribution.log_prob(mode)
        return actions, mode, distribution.mode(), along, both, along.kl(distribution.given(mode))

    actions, mode, same_mode, along, both, kl = seen()
    assert mask[STARTS + np.asarray(actions)].all()
    np.testing.assert_array_equal(mode, same_mode)
    np.testing.assert_array_equal(along.mask, mask)
    np.testing.assert_allclose(*both, rtol=1e-6)
    for ask in (distribution.entropy, lambda: distribution.probs, lambda: distribution.kl(along)):
        with pytest.raises(ValueError, match=r"depend on the choices before it: .*given\(action\)"):
            ask()
    assert abs(kl) < 1e-6
    assert along.given(mode) is along


def test_an_mlp_links_its_parts():
    with pytest.raises(ValueError, match="part_embedding is for MultiDiscrete actions"):
        pm.MLPActorCritic(2, 9, 8, part_embedding=2, key=jax.random.key(0))
    network = pm.MLPActorCritic(2, SIZES, 8, part_embedding=2, key=jax.random.key(0))
    again = type(network)(**network.hyperparameters, key=jax.random.key(1))
    assert jax.tree.structure(again) == jax.tree.structure(network)

    @eqx.filter_jit
    def gradient(network, action):
        def log_prob(network):
            distribution, _ = network(jnp.ones(2), jnp.asarray(START))
            return distribution.log_prob(action)

        return eqx.filter_grad(log_prob)(network).earlier

    used = np.abs(gradient(network, jnp.array([0, 1, 2]))).sum(1) > 0
    np.testing.assert_array_equal(np.flatnonzero(used), [0, 4])
