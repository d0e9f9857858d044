"""How many moves of a policy keep the value of a position of connect four, by a solver.

python benchmarks/connect_four.py checkpoints/RUN --positions 500

The positions are those of random games with 16 to 20 empty cells, the same for every policy. The
value is a win, a draw or a loss with best play. Positions count in which some allowed moves keep
the value and others do not. ``random`` is the share of such moves among the allowed ones.
"""

import argparse
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from ppo_mask.adapters.pgx import PgxGame
from ppo_mask.checkpoints import load_policy
from ppo_mask.training import estimate

COLUMNS, ROWS, HEIGHT = 7, 6, 7  # A column has one bit more than cells, which stays empty.
MOST_EMPTY = 20
CENTER_FIRST = (3, 2, 4, 1, 5, 0, 6)
CELLS = [((1 << ROWS) - 1) << HEIGHT * column for column in range(COLUMNS)]


def has_four(stones: int) -> bool:
    """Whether four stones are in a row."""
    for shift in (1, HEIGHT - 1, HEIGHT, HEIGHT + 1):
        pairs = stones & stones >> shift
        if pairs & pairs >> 2 * shift:
            return True
    return False


def landing(both: int, column: int) -> int:
    """The cell into which a stone falls; 0 if the column is full."""
    return (both + (1 << HEIGHT * column)) & CELLS[column]


def value(own: int, other: int, known: dict[tuple[int, int], int]) -> int:
    """Returns 1, 0 or -1 for a win, draw or loss of who moves next, with best play."""
    if (own, other) in known:
        return known[own, other]
    cells = [cell for column in CENTER_FIRST if (cell := landing(own | other, column))]
    best = -1 if cells else 0
    if any(has_four(own | cell) for cell in cells):
        best = 1
    else:
        forced = [cell for cell in cells if has_four(other | cell)]
        for cell in forced[:1] or cells:
            best = max(best, -value(other, own | cell, known))
            if best == 1:
                break
    known[own, other] = best
    return best


def keeping_moves(own: int, other: int, known: dict[tuple[int, int], int]) -> list[bool]:
    """Says for each column whether a move there keeps the position's value."""
    target = value(own, other, known)

    def after(cell: int) -> int:
        return 1 if has_four(own | cell) else -value(other, own | cell, known)

    cells = [landing(own | other, column) for column in range(COLUMNS)]
    return [bool(cell) and after(cell) == target for cell in cells]


def as_stones(board: np.ndarray) -> int:
    """Turns a plane of pgx's observation, whose last row is the lowest, into bits."""
    rows, columns = np.nonzero(board[::-1])
    return sum(1 << int(HEIGHT * column + row) for row, column in zip(rows, columns, strict=True))


def random_positions(number: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Plays random games; returns the observations and masks of those that are not over."""
    game = PgxGame("connect_four")

    def play(key: Any) -> Any:
        deal_key, length_key, *keys = jax.random.split(key, 2 + ROWS * COLUMNS)
        empty = jax.random.randint(length_key, (), MOST_EMPTY - 4, MOST_EMPTY + 1)

        def move(carry: Any, random: Any) -> Any:
            state, turn, is_over = carry
            step, key = random
            action = jax.random.categorical(key, jnp.where(turn.action_mask, 0.0, -jnp.inf))
            after = game.move(key, state, action)
            goes_on = (step < ROWS * COLUMNS - empty) & ~is_over
            kept = jax.tree.map(lambda a, b: jnp.where(goes_on, a, b), after, (state, turn))
            return (*kept, is_over | kept[1].terminated), None

        first = (*game.deal(deal_key), jnp.array(False))
        steps = jnp.arange(ROWS * COLUMNS - MOST_EMPTY + 4)
        (state, turn, is_over), _ = jax.lax.scan(
            move, first, (steps, jnp.stack(keys)[: len(steps)])
        )
        return game.observe(state, turn.player), turn.action_mask, is_over

    games = jax.jit(jax.vmap(play))(jax.random.split(jax.random.key(seed), 40 * number))
    boards, masks, is_over = map(np.asarray, games)
    return boards[~is_over][:number], masks[~is_over][:number]


@eqx.filter_jit
def probabilities(model: Any, boards: np.ndarray, masks: np.ndarray) -> Any:
    """Returns a policy's probability of each move in each position."""
    return jax.vmap(lambda board, mask: model(board, mask)[0].probs)(boards, masks)


def main(arguments: Sequence[str] | None = None) -> None:
    """Solves the positions, and prints a line for each policy."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("policies", nargs="*", help="runs, checkpoints or saved policies")
    parser.add_argument("--positions", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    boards, masks = random_positions(options.positions, options.seed)
    known: dict[tuple[int, int], int] = {}
    planes = [(as_stones(board[..., 0]), as_stones(board[..., 1])) for board in boards]
    keeps = np.array([keeping_moves(own, other, known) for own, other in planes])
    matters = (keeps != masks).any(1) & keeps.any(1)
    boards, masks, keeps = boards[matters], masks[matters], keeps[matters]
    print(f"{len(boards)} of {len(matters)} positions in which the move matters")
    print(f"random: {np.mean(keeps.sum(1) / masks.sum(1)):.3f}")
    for name in options.policies:
        chances = np.asarray(probabilities(load_policy(name).model, boards, masks))
        greedy = estimate(np.take_along_axis(keeps, chances.argmax(1)[:, None], 1)[:, 0])
        print(f"{name}: sampled {(chances * keeps).sum(1).mean():.3f}, greedy {greedy}")


if __name__ == "__main__":
    main()
