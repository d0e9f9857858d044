"""2048, whose mask forbids moves that change nothing; docs/play/2048.html plays what this trains.

pip install ppo-mask && python examples/game_2048.py
python examples/game_2048.py export latest 2048.npz
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import ppo_mask as pm
from ppo_mask.runner import NetworkSettings, RunConfig, RunSettings, Task, main

KINDS = 12
"""The tiles that an observation tells apart: none, 2, 4, … 2048, which larger ones look like."""

_CELLS = np.arange(16).reshape(4, 4)
# For up, right, down and left: four lines of cells, each from the side that its tiles slide to.
_LINES = np.stack([_CELLS.T, _CELLS[:, ::-1], _CELLS.T[:, ::-1], _CELLS])
_BACK = np.argsort(_LINES.reshape(4, 16))
_DIGITS = 16 ** np.arange(4)


def slid(line: list[int]) -> tuple[list[int], int]:
    """Slides a line of tiles to its start; a tile is the exponent of its number, or 0 for none."""
    tiles, after, score = [tile for tile in line if tile], list[int](), 0
    while tiles:
        tile = tiles.pop(0)
        if tiles[:1] == [tile]:
            tile = tiles.pop(0) + 1
            score += 2**tile
        after.append(tile)
    return after + [0] * (4 - len(after)), score


_SLID = [slid([n >> 4 * i & 15 for i in range(4)]) for n in range(16**4)]
_AFTER, _SCORE = np.array([x for x, _ in _SLID]), np.array([x for _, x in _SLID], np.float32)


def moved(board: Int[Array, " 16"]) -> tuple[Int[Array, "4 16"], Float[Array, " 4"]]:
    """The board after each of the four moves, and what they score."""
    line = board[_LINES] @ _DIGITS
    after = jnp.asarray(_AFTER)[line].reshape(4, 16)
    return jnp.take_along_axis(after, _BACK, axis=1), jnp.asarray(_SCORE)[line].sum(axis=1)


def with_tile(key: Array, board: Int[Array, " 16"]) -> Int[Array, " 16"]:
    """Adds a 2, or one time in ten a 4, in an empty cell."""
    of_cell, of_tile = jax.random.split(key)
    cell = jax.random.categorical(of_cell, jnp.where(board == 0, 0.0, -jnp.inf))
    return board.at[cell].set(jnp.where(jax.random.uniform(of_tile) < 0.9, 1, 2))


class Game2048(pm.AbstractEnv[Array]):
    """The state is the board; the return of an episode is its score."""

    num_actions: int = 4
    action_names = ("up", "right", "down", "left")

    def reset(self, key: Array) -> tuple[Array, pm.TimeStep]:
        """A board with two tiles."""
        one, two = jax.random.split(key)
        board = with_tile(one, with_tile(two, jnp.zeros(16, int)))
        return board, self.show(board, jnp.float32(0))

    def step(self, key: Array, state: Array, action: Array) -> tuple[Array, pm.TimeStep]:
        """Slides all tiles, and adds one."""
        after, score = moved(state)
        board = with_tile(key, after[action])
        return board, self.show(board, score[action])

    def show(self, board: Array, score: Array) -> pm.TimeStep:
        """What there is to see; where no move is left, the mask is of no use."""
        mask = (moved(board)[0] != board).any(axis=1)
        is_over = ~mask.any()
        seen = jax.nn.one_hot(jnp.minimum(board, KINDS - 1), KINDS).reshape(-1)
        info = {"largest_tile": 2 ** board.max()}
        return pm.TimeStep(seen, mask | is_over, score, is_over, False, info)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The game has none."""


TASK = Task[Settings](lambda _: Game2048())
DEFAULTS = RunConfig(
    Settings(),
    pm.PPO(
        num_envs=128,
        num_steps=64,
        learning_rate=1e-3,
        anneal_lr=True,
        gamma=0.997,
        normalize_rewards=True,
    ),
    NetworkSettings(hidden_dim=80),
    run=RunSettings(total_timesteps=6_000_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
