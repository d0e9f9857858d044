"""The board network: weights shared by all cells, neighbors, and nothing of the view ignored."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.networks import BoardNetwork, board_network
from hackmatrix.networks._board import neighbor_sums, view
from hackmatrix.networks.features import NUM_AROUND_PLAYER
from ppo_mask.networks import add_normalization, to_bfloat16, update_statistics
from recorded import noisy, row, views

MASK = jnp.arange(28) < 5


@pytest.fixture(scope="module")
def small():
    return noisy(board_network(8, 1, key=jax.random.key(0)))


@pytest.fixture(scope="module")
def observations() -> jax.Array:
    return jnp.asarray(views().flat[:64])


@pytest.fixture(scope="module")
def seen(observations):
    """The network's view of them."""
    return jax.jit(jax.vmap(view))(observations)


def test_the_view_is_the_whole_observation(observations, seen):
    assert seen.player.shape == (64, NUM_AROUND_PLAYER)
    assert seen.cells.dtype == np.int8
    for number, flat in enumerate(np.asarray(observations)):
        one = row(jax.device_get(seen), number)
        np.testing.assert_array_equal(one.place, np.round(flat[:2] * 5))
        np.testing.assert_array_equal(one.player[:33], flat[:33])
        board = np.roll((one.cells / 36).reshape(6, 6, 42), tuple(one.place.astype(int)), (0, 1))
        np.testing.assert_allclose(board, flat[33:].reshape(6, 6, 42), atol=1e-6)


@pytest.mark.parametrize("place", [(0, 0), (2, 5), (3, 1), (5, 5)])
def test_neighbors_are_those_on_the_board(place):
    board = np.asarray(jax.random.normal(jax.random.key(2), (6, 6, 3)))
    padded = np.pad(board, ((1, 1), (1, 1), (0, 0)))
    sums = padded[2:, 1:-1] + padded[:-2, 1:-1] + padded[1:-1, 2:] + padded[1:-1, :-2]
    back = (-place[0], -place[1])
    rolled = jnp.asarray(np.roll(board, back, (0, 1)).reshape(36, 3))
    got = jax.jit(neighbor_sums)(rolled, jnp.array(place, jnp.uint8))
    np.testing.assert_allclose(got, np.roll(sums, back, (0, 1)).reshape(36, 3), atol=1e-6)


def test_cells_share_their_weights(small, seen):
    """A cell's code depends on what is on it and around it, and not on where it is."""
    codes = jax.jit(small.network.codes.__call__)
    cells, place = np.float32(seen.cells[0]) / 36, jnp.array([0, 0], jnp.uint8)
    inner = np.zeros((6, 6), bool)
    inner[1:4, 1:4] = True  # They have four neighbors, and so they have one row higher.
    moved = np.roll(cells.reshape(6, 6, -1), 1, 0).reshape(36, -1)
    before, after = (np.asarray(codes(jnp.asarray(x), place)) for x in (cells, moved))
    before, after = before.reshape(6, 6, -1), after.reshape(6, 6, -1)
    np.testing.assert_allclose(after[np.roll(inner, 1, 0)], before[inner], atol=1e-6)
    one_more = cells.copy()
    one_more[14] += 1
    changed = np.asarray(codes(jnp.asarray(one_more), place)) - before.reshape(36, -1)
    assert set(np.abs(changed).max(axis=1).nonzero()[0]) == {14, 8, 20, 13, 15}


@pytest.mark.slow
def test_nothing_of_an_observation_is_ignored(small, seen):
    """Policy and value depend on every number that the observation has."""
    network = small.network

    def outputs(player, codes_in, place):
        codes = network.codes(codes_in, place).reshape(-1)
        return jnp.stack(
            [network.actor(codes, player, 1.0).sum(), *network.critic(codes, player, 1.0)]
        )

    slopes = jax.jit(jax.vmap(jax.jacobian(outputs, (0, 1))))
    by_player, by_cells = slopes(seen.player, seen.cells.astype(jnp.float32) / 36, seen.place)
    assert np.all(np.abs(by_player).max(axis=0) > 0)
    assert np.all(np.abs(by_cells).max(axis=0) > 0)


@pytest.mark.parametrize("name", ["hidden_dim", "num_layers", "code_size"])
def test_sizes_must_be_positive(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        BoardNetwork(**{name: 0}, key=jax.random.key(0))


def test_in_bfloat16_it_is_nearly_the_same(observations):
    model = board_network(8, 1, key=jax.random.key(0))
    rounded = to_bfloat16(model)
    assert rounded.precision == "bfloat16"

    def outputs(model):
        def one(observation):
            distribution, value = model(observation, MASK)
            return distribution.probs, value

        return jax.jit(jax.vmap(one))(observations)

    (probs, values), (close_probs, close_values) = outputs(model), outputs(rounded)
    assert close_values.dtype == jnp.float32
    assert 0 < np.abs(values - close_values).max() < 0.1
    assert 0 < np.abs(probs - close_probs).max() < 0.05


def test_normalization_is_of_the_players_side_and_leaves_the_cells(observations, seen):
    plain = board_network(8, 1, key=jax.random.key(0))
    model = add_normalization(plain, observations)
    (moments,) = model.moments
    assert moments.mean.shape == (NUM_AROUND_PLAYER,)
    model = eqx.filter_jit(update_statistics)(model, jax.tree.map(lambda x: x[None], seen))
    (moments,) = model.moments
    np.testing.assert_allclose(moments.mean, seen.player.mean(axis=0), atol=1e-5)
    values = jax.jit(jax.vmap(lambda x: model(x, MASK)[1]))(observations)
    assert np.isfinite(values).all()
    shown = np.clip((seen.player - moments.mean) / moments.deviation, -10, 10)
    of_plain = jax.jit(jax.vmap(lambda x: plain.network(x, MASK)[1]))
    expected = of_plain(seen._replace(player=jnp.asarray(shown)))
    np.testing.assert_allclose(values, expected, atol=1e-4)
