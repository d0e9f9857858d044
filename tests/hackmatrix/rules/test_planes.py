"""Planes, sets of slots, and the ways over the grid, against sets and searches in plain Python."""

from collections import deque

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from hackmatrix.rules import bits, paths, planes
from hackmatrix.rules.entities import MAX_ENTITIES, Slots, slot_set
from hackmatrix.rules.planes import NUM_CELLS, SIZE, Plane

CELLS = range(NUM_CELLS)
DIRECTIONS = ((1, 0), (-1, 0), (0, -1), (0, 1))
EVERY_CELL = set(CELLS)

cells = st.integers(0, NUM_CELLS - 1)
cell_sets = st.sets(cells)
slots = st.integers(0, MAX_ENTITIES - 1)
many = settings(max_examples=150)


def plane(members: set[int]) -> Plane:
    word = sum(1 << cell for cell in members)
    half = NUM_CELLS // 2
    return Plane(np.uint32(word % (1 << half)), np.uint32(word >> half))


def members(found) -> set[int]:
    """The cells of a plane, or the slots of a set of slots."""
    width = NUM_CELLS // 2 if isinstance(found, Plane) else 32
    word = int(found.lo) | int(found.hi) << width
    return {i for i in range(2 * width) if word >> i & 1}


def moved(cell: int, d_row: int, d_col: int) -> int | None:
    row, col = cell // SIZE + d_row, cell % SIZE + d_col
    return row * SIZE + col if 0 <= row < SIZE and 0 <= col < SIZE else None


def shifted(cells: set[int], d_row: int, d_col: int) -> set[int]:
    places = (moved(cell, d_row, d_col) for cell in cells)
    return {place for place in places if place is not None}


def neighbors(cell: int) -> list[int]:
    return [n for d in DIRECTIONS if (n := moved(cell, *d)) is not None]


def distances(start: set[int], free: set[int]) -> dict[int, int]:
    """Steps from the start to each cell that can be reached over free cells."""
    found, queue = dict.fromkeys(start, 0), deque(start)
    while queue:
        cell = queue.popleft()
        for n in neighbors(cell):
            if n in free and n not in found:
                found[n] = found[cell] + 1
                queue.append(n)
    return found


@jax.jit
def of_one(a, cell):
    return {
        "not": ~a,
        "any": a.any(),
        "count": a.size(),
        "has": a.has(cell),
        "has each": a.has(jnp.arange(NUM_CELLS)),
        "shifts": a.shifts(),
        "neighbors": a.neighbors(),
        "around": a.around(),
        "lowest": a.lowest(),
        "only": a.only(),
        "all ranks": jax.vmap(a.nth)(jnp.arange(NUM_CELLS)),
        "flags": a.flags(),
        "packed again": planes.pack(a.flags()),
        "single": planes.single(cell),
        "only one": planes.single(cell).only(),
        "row": planes.row(cell // SIZE),
        "column": planes.column(cell % SIZE),
        "empty": planes.empty(),
    }


@many
@given(cell_sets, cells)
def test_operations_on_one_plane(a, cell):
    got = jax.device_get(of_one(plane(a), np.int32(cell)))
    assert members(got["not"]) == EVERY_CELL - a
    assert got["any"] == bool(a)
    assert got["count"] == len(a)
    assert got["has"] == (cell in a)
    assert got["has each"].tolist() == [c in a for c in CELLS]
    assert [members(shift) for shift in got["shifts"]] == [shifted(a, *d) for d in DIRECTIONS]
    assert members(got["neighbors"]) == {n for c in a for n in neighbors(c)}
    square = set().union(*(shifted(a, r, c) for r in (-1, 0, 1) for c in (-1, 0, 1)))
    assert members(got["around"]) == square - a
    assert got["all ranks"][: len(a)].tolist() == sorted(a)
    if a:
        assert got["lowest"] == min(a)
    if len(a) < 2:
        assert got["only"] == min(a, default=-1)
    assert got["only one"] == cell
    assert got["flags"].tolist() == [c in a for c in CELLS]
    assert members(got["packed again"]) == a
    assert members(got["single"]) == {cell}
    assert members(got["row"]) == {c for c in CELLS if c // SIZE == cell // SIZE}
    assert members(got["column"]) == {c for c in CELLS if c % SIZE == cell % SIZE}
    assert members(got["empty"]) == set()


@jax.jit
def of_two(a, b, condition):
    return a & b, a | b, a.where(condition), a.where(condition, b)


@many
@given(cell_sets, cell_sets, st.booleans())
def test_operations_on_two_planes(a, b, condition):
    both, either, this, this_or_that = jax.device_get(of_two(plane(a), plane(b), condition))
    assert members(both) == a & b
    assert members(either) == a | b
    assert members(this) == (a if condition else set())
    assert members(this_or_that) == (a if condition else b)


union = jax.jit(planes.union)


@many
@given(st.lists(st.tuples(cells, st.booleans()), min_size=8, max_size=8))
def test_union_of_members(entries):
    at, chosen = (np.array(column) for column in zip(*entries, strict=True))
    assert members(union(at, chosen)) == {c for c, member in entries if member}


def test_planes_come_in_batches():
    rng = np.random.default_rng(0)
    flags = rng.random((50, NUM_CELLS)) < 0.3
    batch = planes.pack(jnp.asarray(flags))
    assert np.array_equal(batch.flags(), flags)
    assert np.array_equal(batch.size(), flags.sum(1))
    assert np.array_equal(batch.lowest()[flags.any(1)], flags.argmax(1)[flags.any(1)])


def test_a_constant_plane():
    assert members(planes.constant({0, 17, 18, 35})) == {0, 17, 18, 35}
    assert members(planes.constant(CELLS)) == EVERY_CELL


def test_constant_planes_of_each_cell():
    before, reach = planes.before_each(), planes.reach_of_each()
    for cell in CELLS:
        assert members(jax.tree.map(lambda x, c=cell: x[c], before)) == set(range(cell))
        assert members(jax.tree.map(lambda x, c=cell: x[c], reach)) == {cell, *neighbors(cell)}


@jax.jit
def of_slots(flags, slot, condition, other):
    a, b = slot_set(flags), slot_set(other)
    return {
        "set": a,
        "any": a.any(),
        "count": a.size(),
        "lowest": a.lowest(),
        "ranks": jax.vmap(a.nth)(jnp.arange(MAX_ENTITIES)),
        "with": a.with_slot(slot, condition),
        "without": a.without(slot),
        "where": a.where(condition, b),
    }


@many
@given(st.sets(slots), st.sets(slots), slots, st.booleans())
def test_sets_of_slots(a, b, slot, condition):
    flags, other = (np.array([i in s for i in range(MAX_ENTITIES)]) for s in (a, b))
    got = jax.device_get(of_slots(flags, jnp.int32(slot), condition, other))
    assert members(got["set"]) == a
    assert got["any"] == bool(a)
    assert got["count"] == len(a)
    if a:
        assert got["lowest"] == min(a)
    assert got["ranks"][: len(a)].tolist() == sorted(a)
    assert members(got["with"]) == (a | {slot} if condition else a)
    assert members(got["without"]) == a - {slot}
    assert members(got["where"]) == (a if condition else b)
    assert isinstance(got["where"], Slots)


@pytest.mark.parametrize("word_bits", [18, 32])
def test_bits_at_the_border_between_the_words(word_bits):
    for index in (0, word_bits - 1, word_bits, 2 * word_bits - 1):
        lo, hi = bits.single(jnp.int32(index), word_bits)
        assert int(lo) | int(hi) << word_bits == 1 << index
        assert bits.lowest(lo, hi, word_bits) == index
        assert bits.nth(lo, hi, word_bits, jnp.int32(0)) == index
        assert bits.has(lo, hi, word_bits, jnp.int32(index))


@jax.jit
def searches(start, free, goal, cell, exit):
    one = planes.single(cell)
    return {
        "connected": paths.reach(start, free),
        "first met": paths.first_met(start, free, goal),
        "first neighbor": jax.vmap(lambda c: paths.first_neighbor(planes.single(c), goal))(
            jnp.arange(NUM_CELLS)
        ),
        "exit steps": paths.exit_steps(~free & ~planes.single(exit), exit),
        "line": paths.line(one, ~free),
    }


# A set in which about `share` of the cells are: mazes, open halls and anything between.
@st.composite
def ground(draw):
    share = draw(st.sampled_from([0.3, 0.5, 0.6, 0.7, 0.85, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return {c for c in CELLS if rng.random() < share}


def search(*args):
    return jax.device_get(searches(*args))


@many
@given(st.sets(cells, max_size=3), ground(), st.sets(cells, max_size=5), cells, cells)
def test_searches_find_what_breadth_first_search_finds(start, free, goal, cell, exit):
    got = search(plane(start), plane(free), plane(goal), np.int32(cell), np.int32(exit))

    reached = distances(start, free)
    assert members(got["connected"]) == set(reached)

    met, steps = got["first met"]
    nearest = min((reached[c] for c in goal if c in reached), default=None)
    assert members(met) == {c for c in goal if nearest is not None and reached.get(c) == nearest}
    assert steps == (nearest or 0)

    for c in CELLS:
        options = [n for n in (moved(c, *d) for d in DIRECTIONS) if n in goal]
        first = jax.tree.map(lambda words, c=c: words[c], got["first neighbor"])
        assert members(first) == set(options[:1])

    # The exit is never a block.
    walks = [distances({c}, free | {exit}).get(exit, 0) for c in CELLS]
    assert got["exit steps"].tolist() == walks

    for direction, ray in zip(DIRECTIONS, got["line"], strict=True):
        seen, at = set(), moved(cell, *direction)
        while at is not None:
            seen.add(at)
            at = moved(at, *direction) if at in free else None
        assert members(ray) == seen


# The longest path without a shortcut that the grid holds has 24 cells: here from A to X.
SNAKE = ("FGH.XW", "E.IJ.V", "D..K.U", "C.ML.T", "B.N.RS", "A.OPQ.")


def test_the_longest_shortest_path_is_searched_to_its_end():
    letters = {
        letter: (SIZE - 1 - line) * SIZE + col
        for line, text in enumerate(SNAKE)
        for col, letter in enumerate(text)
        if letter != "."
    }
    way = [letters[letter] for letter in sorted(letters)]
    assert len(way) == 24
    first, last = way[0], way[-1]
    got = search(plane({first}), plane(set(way)), plane({last}), jnp.int32(last), jnp.int32(first))
    assert members(got["connected"]) == set(way)
    assert members(got["first met"][0]) == {last}
    assert got["first met"][1] == 23
    assert got["exit steps"][last] == 23


def test_a_flood_does_not_depend_on_its_company():
    """One that has ended waits for others of its batch, which changes nothing in it."""
    cut_off = (plane({0}), plane({0, 1, 2}), plane({35}))
    at_once = (plane({0}), plane(EVERY_CELL), plane({0, 1}))
    far = (plane({0}), plane(EVERY_CELL), plane({35}))
    together = jax.tree.map(lambda *x: jnp.stack(x), cut_off, at_once, far)
    met, steps = jax.vmap(paths.first_met)(*together)
    for i, flood in enumerate((cut_off, at_once, far)):
        alone, its_steps = paths.first_met(*flood)
        assert members(jax.tree.map(lambda words, i=i: words[i], met)) == members(alone)
        assert steps[i] == its_steps
    assert steps.tolist() == [0, 0, 10]


def test_flags_by_way_of_a_word():
    flags = np.random.default_rng(0).random((40, 28)) < 0.5
    assert bits.flags_of(bits.word(list(jnp.asarray(flags[0]))), 28).tolist() == flags[0].tolist()
    together = jax.jit(jax.vmap(lambda row: bits.flags_of(bits.word(list(row)), 28)))
    np.testing.assert_array_equal(together(flags), flags)
    assert np.asarray(bits.flags_of(bits.word([jnp.bool_(True)] * 32), 32)).all()


@pytest.mark.parametrize("dtype", [jnp.int8, jnp.int32])
def test_a_cells_row_and_column(dtype):
    cell = np.arange(NUM_CELLS, dtype=dtype)
    for found, wanted in zip(
        planes.row_and_col(jnp.asarray(cell)), divmod(cell, SIZE), strict=True
    ):
        assert found.dtype == dtype
        np.testing.assert_array_equal(found, wanted)
