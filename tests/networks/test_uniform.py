"""Random play."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm
from ppo_mask.networks import UniformActorCritic


@pytest.mark.parametrize(
    ("num_actions", "probs"), [(5, [0, 1 / 3, 1 / 3, 0, 1 / 3]), ((2, 3), [0, 1, 0.5, 0, 0.5])]
)
def test_all_allowed_actions_are_equally_likely(num_actions, probs):
    mask = jnp.array([False, True, True, False, True])
    policy = pm.Policy(UniformActorCritic(num_actions))
    distribution, value = policy.model(jnp.zeros(3), mask)
    np.testing.assert_allclose(distribution.probs, probs, rtol=1e-6)
    assert np.isnan(value)
    sampled = policy.sample(jnp.zeros(3), mask, jax.random.key(0))
    assert np.shape(sampled) == np.shape(num_actions)
