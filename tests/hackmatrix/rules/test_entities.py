"""What is read from the table of slots, in loops that end early, against plain Python."""

import jax
import numpy as np
import pytest

from hackmatrix.rules.entities import ENEMY, FREE, MAX_ENTITIES, first_on_each, no_entities
from hackmatrix.rules.game import replace

BATCH = 40


@pytest.fixture
def tables():
    """Slots in use among free ones; of the first games all are free or all in use."""
    rng = np.random.default_rng(0)
    in_use = rng.random((BATCH, MAX_ENTITIES)) < rng.random((BATCH, 1)) ** 2
    in_use[0], in_use[1], in_use[2] = False, True, np.arange(MAX_ENTITIES) == MAX_ENTITIES - 1
    cell = rng.integers(0, 36, in_use.shape).astype(np.int8)
    order = rng.permuted(np.tile(np.arange(MAX_ENTITIES, dtype=np.uint32), (BATCH, 1)), axis=1)
    return in_use, cell, order


def test_words_of_the_entities_on_each_cell(tables):
    in_use, cell, _ = tables
    word = np.where(in_use, np.uint16(1) << (np.arange(MAX_ENTITIES) % 16).astype(np.uint16), 0)

    def found(in_use, cell, word):
        kind = jax.numpy.where(in_use, np.int8(ENEMY), np.int8(FREE))
        return replace(no_entities(), kind=kind, cell=cell).on_cells(word)

    expected = np.zeros((BATCH, 36), np.uint16)
    for game, slot in np.argwhere(in_use):
        expected[game, cell[game, slot]] |= word[game, slot]
    np.testing.assert_array_equal(jax.jit(jax.vmap(found))(in_use, cell, word), expected)
    one = jax.jit(found)(in_use[1], cell[1], word[1])
    np.testing.assert_array_equal(one, expected[1])


def test_the_first_in_order_of_each_key(tables):
    members, key, order = tables
    expected = np.zeros_like(members)
    for game in range(BATCH):
        best: dict[int, int] = {}
        for slot in np.flatnonzero(members[game]):
            rival = best.setdefault(key[game, slot], slot)
            if order[game, slot] < order[game, rival]:
                best[key[game, slot]] = slot
        expected[game, list(best.values())] = True
    got = jax.jit(jax.vmap(first_on_each))(members, key, order)
    np.testing.assert_array_equal(got, expected)
