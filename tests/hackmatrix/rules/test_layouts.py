"""New stages: counts of what they hold against recorded ones, and the laws that each must obey."""

from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import recordings
from games import BATCH, RIGHT, position, reset, stacked, step
from hackmatrix import positions
from hackmatrix.rules.programs import CARDS

SIGNIFICANCE = 1e-4
NEW_GAME, STAGE_8 = "new_game_stage_1", "stage_8_empty_board"
CORNERS = ((0, 0), (0, 5), (5, 0), (5, 5))
STEPS = ((1, 0), (-1, 0), (0, -1), (0, 1))
SURVIVORS = 30


@jax.jit
@jax.vmap
def look(state):
    """What a layout holds, as arrays [cells] or [slots]."""
    game = state.game
    board, table, player = game.board, game.entities, game.player
    return {
        "data": board.data.flags(),
        "programs": board.program_blocks.flags(),
        "question": board.question.flags(),
        "pickups": board.pickups.flags(),
        "exits": board.exits.flags(),
        "touched": board.siphoned.flags() | board.centers.flags(),
        **{name: getattr(board, name) for name in ("points", "program", "spawn_count")},
        **{name: getattr(board, name) for name in ("credits", "energy")},
        **{name: getattr(table, name) for name in ("kind", "type", "cell", "turns")},
        "flags": table.from_siphon | table.from_task,
        "player": player.cell,
        "exit": game.exit,
        "bonus": jnp.stack([player.credits, player.energy, player.data_siphons]),
        "stage": game.stage,
    }


def _together(parts):
    return jax.tree.map(lambda *x: np.concatenate(x), *map(jax.device_get, parts))


@pytest.fixture(scope="module")
def layouts():
    """Layouts of new games and, by walking onto the exit of stage 7, of stage 8."""
    seeds = range(80)
    new = [look(reset(jax.random.split(jax.random.key(seed), BATCH))[0]) for seed in seeds]
    parts = []
    for number, (row, col) in enumerate(CORNERS):
        start = position((row, abs(col - 1)), stage=7, exit=[row, col])
        states = stacked([positions.load(start)])
        action = jnp.full(BATCH, RIGHT if col else RIGHT - 1, jnp.int32)
        for seed in range(8):
            keys = jax.random.split(jax.random.key(100 * number + seed), BATCH)
            parts.append(look(step(keys, states, action)[0]))
    return {NEW_GAME: _together(new), STAGE_8: _together(parts)}


def _name(cell):
    return f"{cell // 6},{cell % 6}"


def counts_of(some):
    """Our layouts, counted as the recordings are."""
    blocks = some["data"] | some["programs"]
    kind = some["data"] + 2 * some["programs"] + 2 * some["question"]
    amount = [("c", some["credits"]), ("e", some["energy"])]
    transmission = some["kind"] == 1
    lit = in_line_of_fire(blocks, some["player"])
    in_fire = np.take_along_axis(lit, np.where(transmission, some["cell"], 0).astype(int), 1)
    has_resources = (some["credits"] > 0) | (some["energy"] > 0)
    program = np.where(some["programs"], some["program"], 0)
    named = [f"{n}:{s}" for n, s in zip(program.ravel(), some["spawn_count"].ravel(), strict=True)]
    return {
        "blocks": Counter(map(str, blocks.sum(1))),
        "kinds": Counter(map(str, kind[blocks])),
        "points": Counter(map(str, some["points"][some["data"]])),
        "program": Counter(np.array(named)[some["programs"].ravel()].tolist()),
        "amount": Counter(f"{letter}{n}" for letter, values in amount for n in values[values > 0]),
        "bonus": Counter(",".join(map(str, bonus)) for bonus in some["bonus"].tolist()),
        "player": Counter(map(_name, some["player"].tolist())),
        "exit": Counter(
            f"{_name(a)}->{_name(b)}"
            for a, b in zip(some["player"].tolist(), some["exit"].tolist(), strict=True)
        ),
        "n_trans": Counter(map(str, transmission.sum(1))),
        "trans_type": Counter(map(str, some["type"][transmission])),
        "trans_cell_class": Counter(
            np.where(in_fire[transmission], "in_fire", "out_of_fire").tolist()
        ),
        "res_on": Counter(np.where(some["pickups"][has_resources], "5", "0").tolist()),
    }


def _spread(grid):
    """Cells [n, 6, 6] next to a cell of each grid, one array for each direction."""
    padded = np.pad(grid, ((0, 0), (1, 1), (1, 1)))
    return [padded[:, 1 - dr : 7 - dr, 1 - dc : 7 - dc] for dr, dc in STEPS]


def in_line_of_fire(blocks, player):
    opaque = blocks.reshape(-1, 6, 6)
    start = (np.arange(36) == player[:, None]).reshape(-1, 6, 6)
    lit = np.zeros_like(start)
    for direction in range(4):
        ray = start
        for _ in range(5):
            ray = _spread(ray)[direction]
            lit |= ray
            ray = ray & ~opaque
    return lit.reshape(-1, 36)


@pytest.mark.parametrize("where", [NEW_GAME, STAGE_8])
def test_counts(layouts, where):
    recorded = recordings.layouts()[where]
    ours = counts_of(jax.tree.map(lambda x: x[:20_000], layouts[where]))
    # Each of our layouts of stage 8 starts as the last stage was left: it has no bonus.
    skipped = {"bonus"} if where == STAGE_8 else set()
    assert recorded.keys() - skipped >= {"blocks", "kinds", "points", "program"}
    for name in ours.keys() - skipped:
        values = sorted(recorded[name].keys() | ours[name].keys())
        # A single value has no distribution, and some are laws: their names must just agree.
        assert recorded[name].keys() == ours[name].keys(), name
        table = [
            [count.get(value, 0) for value in values] for count in (recorded[name], ours[name])
        ]
        if len(values) > 1:
            assert stats.chi2_contingency(table).pvalue > SIGNIFICANCE, name


@pytest.mark.parametrize("where", [NEW_GAME, STAGE_8])
def test_block_cells(layouts, where):
    """All cells together, and each on its own: one odd cell hardly shows among 32."""
    recorded = recordings.layouts()[where]
    theirs, number = np.array(recorded["block_cell"]), recorded["n"]
    blocks = layouts[where]["data"] | layouts[where]["programs"]
    ours = blocks.sum(0)
    assert np.array_equal(theirs > 0, ours > 0)
    inner = ours > 0
    assert stats.chi2_contingency([theirs[inner], ours[inner]]).pvalue > SIGNIFICANCE
    for cell in np.flatnonzero(inner):
        table = [[theirs[cell], number - theirs[cell]], [ours[cell], len(blocks) - ours[cell]]]
        pvalue = stats.chi2_contingency(table, correction=False).pvalue
        assert pvalue > SIGNIFICANCE, f"{_name(cell)}: {np.divide(*np.transpose(table))}"


def _assert_lawful(some):
    blocks = some["data"] | some["programs"]
    number = len(blocks)
    assert not (some["data"] & some["programs"]).any()
    assert not (some["question"] & ~blocks).any()
    assert not some["touched"].any()

    # The exit, a pickup on each corner that is neither it nor the player's own, no other of either.
    corner = np.isin(np.arange(36), [6 * row + col for row, col in CORNERS])
    own = np.arange(36) == some["player"][:, None]
    exit = np.arange(36) == some["exit"][:, None]
    assert np.array_equal(some["exits"], exit)
    assert (exit <= corner & ~own).all()
    assert np.array_equal(some["pickups"], corner & ~own & ~exit)
    assert not (blocks & corner).any()

    # Resources of one sort, 1 to 3, on all cells but the exit and blocks.
    amount = some["credits"] + some["energy"]
    assert np.array_equal(amount > 0, ~blocks & ~exit)
    assert amount.max() <= 3
    assert not ((some["credits"] > 0) & (some["energy"] > 0)).any()

    # What blocks hold.
    assert np.array_equal(some["points"] > 0, some["data"])
    assert np.array_equal(some["program"] >= 0, some["programs"])
    spawns = np.array([card.spawn_count for card in CARDS])[some["program"]]
    wanted = np.where(some["data"], some["points"], np.where(some["programs"], spawns, 0))
    assert np.array_equal(some["spawn_count"], wanted)
    for row in range(number):
        held = some["program"][row][some["programs"][row]].tolist()
        assert len(held) == len(set(held))

    # All other cells are connected, with the exit as an end; and no block is walled in.
    ground, end = (~blocks).reshape(-1, 6, 6), exit.reshape(-1, 6, 6).copy()
    end[:, 0, 0] = False  # the recordings show that the original walks through an exit there
    reached = np.zeros_like(ground)
    reached[:, 0, 0] = True
    for _ in range(36):
        reached |= np.logical_or.reduce(_spread(reached & ~end)) & ground
    assert np.array_equal(reached, ground)
    assert (~ground <= np.logical_or.reduce(_spread(ground))).all()


@pytest.mark.parametrize("where", [NEW_GAME, STAGE_8])
def test_laws(layouts, where):
    some = jax.tree.map(lambda x: x[:4096], layouts[where])
    _assert_lawful(some)
    blocks = (some["data"] | some["programs"]).sum(1)
    assert blocks.min() == 5
    assert blocks.max() == 11
    transmission = some["kind"] == 1
    assert (transmission.sum(1) == some["stage"]).all()
    assert (some["kind"] <= 1).all()
    assert (some["turns"][transmission] == 1).all()
    assert not some["flags"][transmission].any()


def test_crowded_boards_still_get_a_layout():
    rng = np.random.default_rng(0)
    starts = []
    for _ in range(64):
        cells = [divmod(int(cell), 6) for cell in rng.permutation(34)][:SURVIVORS]
        enemies = [(int(rng.integers(4)), *cell) for cell in cells[: rng.integers(0, SURVIVORS)]]
        there = {enemy[1:] for enemy in enemies}
        standing = [cell for cell in cells if cell not in there]
        starts.append(position((5, 4), enemies=enemies, transmissions=standing))
    keys = jax.random.split(jax.random.key(0), BATCH)
    states = stacked([positions.load(start) for start in starts])
    after, timestep = step(keys, states, jnp.full(BATCH, RIGHT, jnp.int32))
    assert timestep.info["stage_completed"].all()
    some = jax.device_get(look(after))
    _assert_lawful(some)
    for row in range(BATCH):
        start = starts[row % len(starts)]
        where = {tuple(each[1:3]) for each in start["enemies"]}
        where |= {tuple(each[:2]) for each in start["transmissions"]}
        blocks = np.flatnonzero(some["data"][row] | some["programs"][row])
        assert not where & {divmod(int(cell), 6) for cell in blocks}
        alive = some["kind"][row] > 0
        # Two transmissions for stage 2 come to those that were there, as far as there is room.
        now = {divmod(int(cell), 6) for cell in some["cell"][row][alive]}
        assert where <= now
        assert alive.sum() == len(now)
        assert len(now) == len(where) + min(2, 35 - len(where) - len(blocks))
