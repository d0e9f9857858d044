import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.ppo import estimate_advantages


def _by_hand(reward, value, next_value, terminated, truncated, gamma, lam):
    """A loop in float64, straight from the definition: each sum starts at its own step."""
    steps, envs = reward.shape
    out = np.zeros((steps, envs))
    for e in range(envs):
        for t in range(steps):
            weight = 1.0
            for k in range(t, steps):
                worth = 0.0 if terminated[k, e] else float(next_value[k, e])
                delta = float(reward[k, e]) + gamma * worth - float(value[k, e])
                out[t, e] += weight * delta
                weight *= gamma * lam
                if terminated[k, e] or truncated[k, e]:
                    break
    return out


@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.95), (1.0, 1.0), (0.9, 0.0), (0.0, 0.5)])
def test_equals_the_loop_by_hand(gamma, lam):
    rng = np.random.default_rng(0)
    reward, value, next_value = rng.normal(size=(3, 40, 16)).astype(np.float32)
    terminated, truncated = rng.random((2, 40, 16)) < 0.15
    assert (terminated & truncated).any()
    got = estimate_advantages(
        *map(jnp.asarray, (reward, value, next_value, terminated, truncated)), gamma, lam
    )
    want = _by_hand(reward, value, next_value, terminated, truncated, gamma, lam)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
