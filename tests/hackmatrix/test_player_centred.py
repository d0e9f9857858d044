"""The default network's own view of the board."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import recordings

from hackmatrix import HackMatrix
from hackmatrix.networks import NUM_FEATURES, PlayerCentredMLP, features
from hackmatrix.observation import OBSERVATION_SIZE


def test_features_are_the_board_from_where_the_player_stands():
    dumped = [each["state"] for each in recordings.read("observations.jsonl.gz")]
    states = recordings.load_all(dumped)
    observations = jax.jit(jax.vmap(HackMatrix().observe))(states)
    seen = np.asarray(jax.jit(jax.vmap(features))(observations))
    assert seen.shape == (len(dumped), NUM_FEATURES)
    np.testing.assert_array_equal(seen[:, :OBSERVATION_SIZE], observations)
    for position, values in zip(dumped, seen, strict=True):
        row, col = position["player"][:2]
        grid = values[33:OBSERVATION_SIZE].reshape(6, 6, 42)
        view = values[OBSERVATION_SIZE:-6].reshape(3, 3, 43)
        for i, j in np.ndindex(3, 3):
            r, c = row + i - 1, col + j - 1
            on_board = 0 <= r < 6 and 0 <= c < 6
            np.testing.assert_array_equal(view[i, j, :42], grid[r, c] if on_board else 0)
            assert view[i, j, 42] == on_board
        up, right = np.array(position["exit"]) - [row, col]
        way = [up > 0, up < 0, right > 0, right < 0, up / 5, right / 5]
        np.testing.assert_allclose(values[-6:], way, atol=1e-6)


def test_hyperparameters_rebuild_the_structure():
    model = PlayerCentredMLP(16, 1, key=jax.random.key(0))
    again = PlayerCentredMLP(**model.hyperparameters, key=jax.random.key(1))
    assert jax.tree.structure(model) == jax.tree.structure(again)
    observation = jnp.zeros(OBSERVATION_SIZE)
    distribution, value = eqx.filter_jit(model)(observation, jnp.arange(28) < 3)
    np.testing.assert_allclose(distribution.probs[:3], 1 / 3, atol=0.05)
    assert value.shape == ()
