import jax
import jax.numpy as jnp
import numpy as np
import pytest

import ppo_mask as pm


def test_initialization_is_orthogonal_with_the_fields_gains():
    model = pm.MLPActorCritic(40, 6, 16, 3, key=jax.random.key(0))
    for layers, head_gain in ((model.actor, 0.01), (model.critic, 1.0)):
        assert len(layers) == 4
        for layer, gain in zip(layers, [2**0.5] * 3 + [head_gain], strict=True):
            weight = np.array(layer.weight)
            gram = weight @ weight.T
            np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)
            assert not np.array(layer.bias).any()


def test_starts_uniform_over_the_allowed_actions():
    model = pm.MLPActorCritic(40, 6, 16, 3, key=jax.random.key(0))
    mask = np.array([True, False, True, True, False, True])

    @jax.jit
    def run(observation):
        distribution, value = model(observation, jnp.array(mask))
        return distribution.probs, value

    probs, value = run(np.sin(np.arange(40.0, dtype=np.float32)))
    np.testing.assert_allclose(probs, np.where(mask, 0.25, 0), atol=0.02)
    assert value.shape == ()


@pytest.mark.parametrize("kind", [pm.MLPActorCritic, pm.GRUActorCritic])
def test_sizes_that_cannot_work_are_refused(kind):
    with pytest.raises(ValueError, match="hidden_dim must be at least 1, got 0"):
        kind(5, 3, hidden_dim=0, key=jax.random.key(0))


def test_the_policys_gain_multiplies_its_logits():
    seen, mask = jnp.sin(jnp.arange(40.0)), jnp.ones(6, bool)

    @jax.jit
    def logits():
        key = jax.random.key(0)
        models = (pm.MLPActorCritic(40, 6, 16, 3, False, x, key=key) for x in (1.0, 9.0))
        return [jnp.log(model(seen, mask)[0].probs) for model in models]

    plain, lifted = (x - x[0] for x in logits())
    np.testing.assert_allclose(lifted, 9 * plain, rtol=1e-3, atol=1e-5)


class _Thirds(pm.AbstractReader):
    """A rollout keeps whole numbers; the network sees thirds of them, and how many there are."""

    @property
    def hyperparameters(self):
        return {}

    def features(self, observation):
        return jnp.round(observation * 3).astype(jnp.int8)

    def unpack(self, features):
        return {"count": features.size * jnp.ones(()), "thirds": features / 3}

    def join(self, numbers):
        return jnp.append(numbers["thirds"], numbers["count"])


def test_a_reader_has_three_stages():
    network = pm.MLPActorCritic(3, 2, 8, 1, key=jax.random.key(0))
    model = pm.Model(_Thirds(), network)
    observation, mask = jnp.array([1 / 3, 2.0]), jnp.ones(2, bool)
    kept = model.reader.features(observation)
    np.testing.assert_array_equal(kept, np.array([1, 6], np.int8))
    assert kept.dtype == jnp.int8
    np.testing.assert_allclose(model.inputs(kept), [1 / 3, 2, 2], rtol=1e-6)
    value = jax.jit(lambda seen: model(seen, mask)[1])(observation)
    np.testing.assert_allclose(value, network(model.inputs(kept), mask)[1], rtol=1e-6)
