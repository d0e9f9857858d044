"""Searches over the grid, and words of bits, where play seldom takes them: against plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.rules import bits, paths, planes
from hackmatrix.rules.plain import BOARD, distances, neighbors
from hackmatrix.rules.planes import Plane

# The longest path without a shortcut that the grid holds has 24 cells: here from A to X.
SNAKE = ("FGH.XW", "E.IJ.V", "D..K.U", "C.ML.T", "B.N.RS", "A.OPQ.")
MAZES = 300


def mazes():
    """Free cells: little room and much, and the snake; each with a start, a goal and an exit."""
    rng = np.random.default_rng(0)
    free = rng.random((MAZES, 36)) < rng.choice([0.3, 0.5, 0.7, 0.85, 1], (MAZES, 1))
    start, goal = (rng.random((MAZES, 36)) < 0.04 for _ in range(2))
    exit = rng.integers(0, 36, MAZES)
    letters = "".join(reversed(SNAKE))
    free[0] = [letter != "." for letter in letters]
    start[0], goal[0] = ([letter == end for letter in letters] for end in "AX")
    exit[0] = letters.index("A")
    return free, start, goal, exit


@jax.jit
@jax.vmap
def searches(free, start, goal, exit):
    ground, end = planes.pack(free), planes.single(exit)
    met, steps = paths.first_met(planes.pack(start), ground, planes.pack(goal))
    return {
        "reached": paths.reach(planes.pack(start), ground).flags(),
        "met": met.flags(),
        "steps": steps,
        "exit steps": paths.exit_steps(~ground & ~end, exit),
        "first": jax.vmap(lambda cell: paths.first_neighbor(planes.single(cell), ground))(
            jnp.arange(36)
        ).flags(),
    }


def cells(flags):
    return {cell for cell, on in zip(BOARD, flags, strict=True) if on}


def test_searches_find_what_breadth_first_search_finds():
    """They are of one batch: one that has ended waits for others, which changes nothing in it."""
    given = mazes()
    found = jax.device_get(searches(*given))
    assert found["steps"][0] == found["exit steps"][0].max() == 23
    for row, (free, start, goal, exit) in enumerate(zip(*given, strict=True)):
        free, start, goal, exit = cells(free), cells(start), cells(goal), BOARD[exit]
        ways = [distances(cell, free | {cell}) for cell in start]
        far = {cell: min(way.get(cell, 99) for way in ways) for way in ways for cell in way}
        nearest = min((far[cell] for cell in goal if cell in far), default=None)
        assert cells(found["reached"][row]) == set(far)
        assert cells(found["met"][row]) == {
            cell for cell in goal & far.keys() if far[cell] == nearest
        }
        assert found["steps"][row] == (nearest or 0)
        out = distances(exit, free | {exit})
        for number, cell in enumerate(BOARD):
            beside = [out[n] + 1 for n in neighbors(cell) if n in out]
            walk = 0 if cell == exit else out.get(cell, min(beside, default=0))
            assert found["exit steps"][row][number] == walk
            options = [n for n in neighbors(cell) if n in free]
            assert cells(found["first"][row][number]) == set(options[:1])


@pytest.mark.parametrize("word_bits", [18, 32])
def test_bits_at_the_border_between_the_words(word_bits):
    index = jnp.array([0, word_bits - 1, word_bits, 2 * word_bits - 1])

    @jax.jit
    @jax.vmap
    def look(index):
        lo, hi = bits.single(index, word_bits)
        nth = bits.nth(lo, hi, word_bits, jnp.int32(0))
        return lo, hi, bits.lowest(lo, hi, word_bits), nth, bits.has(lo, hi, word_bits, index)

    lo, hi, lowest, nth, has = map(np.asarray, look(index))
    assert [int(a) | int(b) << word_bits for a, b in zip(lo, hi, strict=True)] == [
        1 << int(i) for i in index
    ]
    np.testing.assert_array_equal(lowest, index)
    np.testing.assert_array_equal(nth, index)
    assert has.all()


def test_constant_planes():
    def members(plane):
        word = int(plane.lo) | int(plane.hi) << 18
        return {cell for cell in range(36) if word >> cell & 1}

    assert members(planes.constant({0, 17, 18, 35})) == {0, 17, 18, 35}
    before, reach = planes.before_each(), planes.reach_of_each()
    for number, cell in enumerate(BOARD):
        assert members(Plane(before.lo[number], before.hi[number])) == set(range(number))
        beside = {6 * row + col for row, col in neighbors(cell)}
        assert members(Plane(reach.lo[number], reach.hi[number])) == beside | {number}


def test_flags_by_way_of_a_word():
    flags = np.random.default_rng(0).random((40, 32)) < 0.5
    again = jax.jit(jax.vmap(lambda row: bits.flags_of(bits.word(list(row)), 32)))
    np.testing.assert_array_equal(again(flags), flags)
