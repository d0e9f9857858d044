import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from ppo_mask.networks import MLPActorCritic


def test_initialisation_is_orthogonal_with_the_fields_gains():
    model = MLPActorCritic(40, 6, 16, 3, key=jax.random.key(0))
    for layers, head_gain in ((model.actor, 0.01), (model.critic, 1.0)):
        assert len(layers) == 4
        for layer, gain in zip(layers, [2**0.5] * 3 + [head_gain], strict=True):
            gram = layer.weight @ layer.weight.T
            np.testing.assert_allclose(gram, gain**2 * np.eye(len(gram)), atol=1e-5)
            assert (layer.bias == 0).all()


def test_starts_uniform_over_the_allowed_actions():
    model = MLPActorCritic(40, 6, key=jax.random.key(0))
    mask = jnp.array([True, False, True, True, False, True])
    distribution, value = model(jax.random.normal(jax.random.key(1), (40,)), mask)
    np.testing.assert_allclose(distribution.probs[mask], 0.25, atol=0.02)
    assert value.shape == ()


def test_hyperparameters_rebuild_the_structure():
    model = MLPActorCritic(5, 3, hidden_dim=7, num_layers=1, key=jax.random.key(0))
    again = eqx.filter_eval_shape(MLPActorCritic, **model.hyperparameters, key=jax.random.key(1))
    same = jax.tree.map(lambda x, y: x.shape == y.shape, eqx.filter(model, eqx.is_array), again)
    assert jax.tree.all(same)


def test_sizes_that_cannot_work_are_refused():
    with pytest.raises(ValueError, match="hidden_dim must be at least 1, got 0"):
        MLPActorCritic(5, 3, hidden_dim=0, key=jax.random.key(0))
