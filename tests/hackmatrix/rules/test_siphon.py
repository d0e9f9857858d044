"""Siphoning random boards, against the rules in plain Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from hackmatrix.rules import siphon
from hackmatrix.rules.game import NO_PROGRAM, Board, blank_game, replace
from hackmatrix.rules.planes import NUM_CELLS, SIZE, pack
from reference import neighbors

BOARDS = 600


def boards(rng: np.random.Generator) -> list[dict[str, np.ndarray]]:
    """Boards of few values, so that places are often equal; some crowded with full blocks."""
    made = []
    for number in range(BOARDS):
        full = number % 10 == 0
        kind = rng.choice(3, NUM_CELLS, p=(0.2, 0.6, 0.2) if full else (0.7, 0.15, 0.15))
        data, programs = kind == 1, kind == 2
        most = 9 if full else 2
        amount = rng.integers(0, 4 if full else 2, (2, NUM_CELLS)) * (kind == 0)
        made.append(
            {
                "data": data,
                "program_blocks": programs,
                "siphoned": rng.random(NUM_CELLS) < 0.2,
                "points": data * rng.integers(1, most + 1, NUM_CELLS),
                "program": np.where(programs, rng.integers(0, 4, NUM_CELLS), NO_PROGRAM),
                "spawn_count": (kind > 0) * rng.integers(0, 10, NUM_CELLS),
                "credits": amount[0],
                "energy": amount[1],
                "owned": rng.random(4) < 0.3,
                "player": rng.integers(NUM_CELLS),
            }
        )
    return made


def reach(cell: int) -> list[int]:
    here = divmod(int(cell), SIZE)
    return [SIZE * row + col for row, col in (here, *neighbors(here))]


def is_block(board, cell) -> bool:
    return bool(board["data"][cell] or board["program_blocks"][cell])


def yield_of(board, cell):
    """Credits, energy, points and new programs."""
    if is_block(board, cell):
        return 0, 0, [], set()
    fresh = [c for c in reach(cell) if not board["siphoned"][c]]
    ground = [c for c in fresh if not is_block(board, c)]
    return (
        sum(int(board["credits"][c]) for c in ground),
        sum(int(board["energy"][c]) for c in ground),
        sorted(int(board["points"][c]) for c in fresh if board["data"][c]),
        {
            int(board["program"][c])
            for c in fresh
            if board["program_blocks"][c] and not board["owned"][board["program"][c]]
        },
    )


def blocks_reached(board, cell) -> set[int]:
    return {c for c in reach(cell) if is_block(board, c) and not board["siphoned"][c]}


def lost(board) -> int:
    mine = yield_of(board, board["player"])
    wanted = blocks_reached(board, board["player"]) if mine[2] or mine[3] else set()
    better = []
    for cell in range(NUM_CELLS):
        if is_block(board, cell) or not wanted <= set(reach(cell)):
            continue
        other = yield_of(board, cell)
        same = other[2:] == mine[2:]
        if same and other[0] >= mine[0] and other[1] >= mine[1] and other[:2] != mine[:2]:
            better.append(other)
    return sum(max(x[i] for x in better) - mine[i] for i in range(2)) if better else 0


def game_of(board, game):
    """``game`` with a board of ours."""
    owned = sum(1 << number for number, has in enumerate(board["owned"]) if has)
    sets = {name: pack(jnp.asarray(board[name])) for name in ("data", "program_blocks", "siphoned")}
    cells = ("points", "program", "spawn_count", "credits", "energy")
    return replace(
        game,
        player=replace(game.player, cell=jnp.int32(board["player"])),
        board=replace(
            game.board, **sets, **{name: jnp.asarray(board[name], jnp.int8) for name in cells}
        ),
        owned=jnp.uint32(owned),
    )


@pytest.fixture(scope="module")
def siphoned():
    given = boards(np.random.default_rng(0))
    blank = blank_game()
    games = jax.tree.map(lambda *x: np.stack(x), *(game_of(board, blank) for board in given))
    outcome = jax.jit(jax.vmap(lambda game: (siphon.lost_yield(game), siphon.siphon(game))))(games)
    return given, jax.device_get(outcome)


def test_what_a_better_place_would_have_brought(siphoned):
    given, (found, _) = siphoned
    wanted = [lost(board) for board in given]
    assert sum(x > 0 for x in wanted) > BOARDS // 10
    with_data = [bool(yield_of(board, board["player"])[2]) for board in given]
    assert sum(x > 0 and y for x, y in zip(wanted, with_data, strict=True)) > 5
    np.testing.assert_array_equal(found, wanted)


def test_what_a_siphon_takes(siphoned):
    given, (_, after) = siphoned
    for row, board in enumerate(given):
        fresh = [c for c in reach(board["player"]) if not board["siphoned"][c]]
        ground = [c for c in fresh if not is_block(board, c)]
        blocks = [c for c in fresh if is_block(board, c)]
        assert int(after.player.credits[row]) == sum(board["credits"][c] for c in ground)
        assert int(after.player.energy[row]) == sum(board["energy"][c] for c in ground)
        assert int(after.player.score[row]) == sum(board["points"][c] for c in blocks)
        assert int(after.pending[row]) == sum(board["spawn_count"][c] for c in blocks)
        programs = {int(board["program"][c]) for c in blocks if board["program_blocks"][c]}
        had = {number for number, has in enumerate(board["owned"]) if has}
        assert int(after.owned[row]) == sum(1 << number for number in programs | had)
        left: Board = jax.tree.map(lambda x, row=row: x[row], after.board)
        for name, cells in (("credits", ground), ("energy", ground), ("spawn_count", blocks)):
            wanted = board[name].copy()
            wanted[cells] = 0
            np.testing.assert_array_equal(getattr(left, name), wanted)
