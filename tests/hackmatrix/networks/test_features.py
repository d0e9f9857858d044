"""The default network's view of the board, against the recorded positions it was computed from."""

from collections import deque

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from hackmatrix.networks import player_centered_mlp
from hackmatrix.networks.features import NUM_FEATURES, Features, features, unpack
from hackmatrix.observation import DIVISORS
from ppo_mask.networks import add_normalization, update_statistics
from recorded import views

DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1))
PLAIN = [*range(12), *range(35, 42)]  # the channels of a cell but for its program
TARGET = [*range(7), 36]
DATA, PROGRAM, QUESTION, TURNS, EXIT = 7, 8, 9, 36, 40


def on_board(row, col):
    return 0 <= row < 6 and 0 <= col < 6


def distances_to_exit(blocks, exit):
    """Steps of the shortest walk from each cell that enters no block but may start on one."""
    found, queue = {exit: 0}, deque([exit])
    while queue:
        row, col = queue.popleft()
        if blocks[row, col]:
            continue
        for dr, dc in DIRECTIONS:
            cell = row + dr, col + dc
            if on_board(*cell) and cell not in found:
                found[cell] = found[row, col] + 1
                queue.append(cell)
    return found


def in_floats(flat):
    """The features of one vector."""
    sizes = [33, 36 * 19, 23 * 3, 4 * 8, 4, 4, 1]
    player, cells, programs, targets, *rest = np.split(flat, np.cumsum(sizes)[:-1])
    return Features(
        player, cells.reshape(36, 19), programs.reshape(23, 3), targets.reshape(4, 8), *rest
    )


@jax.jit
@jax.vmap
def read(observation):
    seen = features(observation)
    return seen, seen.packed(), unpack(seen.packed())


def test_features_are_the_board_from_where_the_player_stands():
    observations = views().flat
    seen, packed, flat = jax.device_get(read(observations))
    assert flat.shape == (len(observations), NUM_FEATURES)
    assert packed.dtype == np.int8
    np.testing.assert_array_equal(np.round(flat[:, :33] * DIVISORS[:33]), seen.player)

    for i, observation in enumerate(observations):
        one = in_floats(flat[i])
        grid = observation[33:].reshape(6, 6, 42)
        row, col = (round(5 * float(x)) for x in observation[:2])
        np.testing.assert_array_equal(one.player, observation[:33])
        rolled = np.roll(grid[:, :, PLAIN], (-row, -col), (0, 1))
        np.testing.assert_array_equal(one.cells, rolled.reshape(36, -1))

        programs = np.zeros((23, 3))
        for r, c, number in np.argwhere(grid[:, :, 12:35]):
            programs[number] = (r - row) / 6, (c - col) / 6, 1
        np.testing.assert_allclose(one.programs, programs, atol=1e-6)

        blocks = grid[:, :, [DATA, PROGRAM, QUESTION]].any(-1)
        exit = tuple(np.argwhere(grid[:, :, EXIT])[0].tolist())
        far = distances_to_exit(blocks, exit)
        beside = [far.get((row + dr, col + dc), 99) for dr, dc in DIRECTIONS]
        blocked = [
            on_board(row + dr, col + dc) and blocks[row + dr, col + dc] for dr, dc in DIRECTIONS
        ]
        beside = [99 if wall else steps for steps, wall in zip(beside, blocked, strict=True)]
        nearest = min(beside)
        assert one.ways.tolist() == [steps == nearest < 99 for steps in beside]
        np.testing.assert_allclose(one.distance, (nearest + 1) / 10 if nearest < 99 else 0)

        occupied = grid[:, :, :4].any(-1) | (grid[:, :, TURNS] > 0)
        for direction, (dr, dc) in enumerate(DIRECTIONS):
            r, c = row + dr, col + dc
            assert one.edges[direction] == (not on_board(r, c))
            while on_board(r, c) and not (blocks[r, c] or occupied[r, c]):
                r, c = r + dr, c + dc
            hit = on_board(r, c) and occupied[r, c]
            target = grid[r, c, TARGET] if hit else np.zeros(len(TARGET))
            np.testing.assert_array_equal(one.targets[direction], target)


def test_a_normalized_network_reads_the_board_as_it_is_and_normalizes_what_it_read():
    observations = jnp.asarray(views().flat)
    _, packed, flat = read(observations)
    plain = player_centered_mlp(8, 1, key=jax.random.key(0))
    model = eqx.filter_jit(update_statistics)(add_normalization(plain, observations), packed[None])
    [moments] = model.moments
    np.testing.assert_allclose(moments.mean, np.mean(flat, axis=0), atol=1e-5)
    shown = np.clip((flat - moments.mean) / moments.deviation, -10, 10)
    mask = jnp.arange(28) < 3
    value = jax.jit(jax.vmap(lambda x: model(x, mask)[1]))(observations)
    expected = jax.jit(jax.vmap(lambda x: plain.network(x, mask)[1]))(jnp.asarray(shown))
    np.testing.assert_allclose(value, expected, atol=1e-4)
