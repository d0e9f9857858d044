"""Where and what is spawned, against 33 recorded positions with 2,000 trials each.

Eight of them are crowded: a single empty cell out of the line of fire, or few, or none at all.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import recordings
from games import BATCH, games_of, step
from hackmatrix import positions
from hackmatrix.rules.entities import NUM_TYPES

TRIALS = 2048  # a position, as many as were recorded
SIGNIFICANCE = 1e-4
NOWHERE = 36


@pytest.fixture(scope="module")
def recorded():
    return recordings.read("spawns.jsonl.gz")


@pytest.fixture(scope="module")
def ours(recorded):
    """Counts of spawn cells (NOWHERE where nothing spawned) and types, a row for each position."""
    cells, types = np.zeros((2, len(recorded), NOWHERE + 1), int)
    for number, each in enumerate(recorded):
        state = positions.load(each["state"])
        states = jax.tree.map(lambda x: jnp.broadcast_to(x, (BATCH, *x.shape)), state)
        actions = jnp.full(BATCH, each["action"], jnp.int32)
        there_before = [6 * t[0] + t[1] for t in each["state"]["transmissions"] if t[2] > 1]
        for seed in range(TRIALS // BATCH):
            keys = jax.random.split(jax.random.fold_in(jax.random.key(seed), number), BATCH)
            table = jax.device_get(games_of(step(keys, states, actions)[0]).entities)
            new = (table.kind == 1) & ~np.isin(table.cell, there_before)
            assert (new.sum(1) <= 1).all()
            first = np.argmax(new, axis=1)[:, None]
            cell, type = (np.take_along_axis(x, first, 1)[:, 0] for x in (table.cell, table.type))
            spawned = new.any(1)
            cells[number] += np.bincount(np.where(spawned, cell, NOWHERE), minlength=NOWHERE + 1)
            types[number] += np.bincount(type[spawned], minlength=NOWHERE + 1)
    return cells, types[:, :NUM_TYPES]


def _cell_counts(each):
    counts = np.zeros(NOWHERE + 1, int)
    for name, count in each["cells"].items():
        cell = NOWHERE if name == "none" else np.dot([int(x) for x in name.split(",")], [6, 1])
        counts[cell] += count
    return counts


def same_distribution(one, other):
    """Whether two rows of counts may come from one distribution, by a chi-squared test."""
    one, other = np.asarray(one), np.asarray(other)
    seen = (one + other) > 0
    if seen.sum() < 2:
        return True
    return stats.chi2_contingency([one[seen], other[seen]]).pvalue > SIGNIFICANCE


def test_the_same_cells(recorded, ours):
    for number, each in enumerate(recorded):
        theirs = set(np.flatnonzero(_cell_counts(each)))
        assert set(np.flatnonzero(ours[0][number])) == theirs, f"position {number}"


def test_the_same_frequencies_of_cells_and_types(recorded, ours):
    for number, each in enumerate(recorded):
        assert same_distribution(_cell_counts(each), ours[0][number]), f"position {number}"
        types = [each["types"].get(str(type), 0) for type in range(NUM_TYPES)]
        assert same_distribution(types, ours[1][number]), f"position {number}"


def test_types_are_uniform(ours):
    assert stats.chisquare(ours[1].sum(0)).pvalue > SIGNIFICANCE
