"""Othello on a board of 6 × 6: a game of your own, trained by playing against older copies.

pip install ppo-mask && python examples/othello.py
python examples/othello.py evaluate --tournament latest --policy random
"""

import dataclasses
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

import ppo_mask as pm
from ppo_mask.games import AbstractGame, Seat, Turn, random_opponent
from ppo_mask.runner import RunConfig, RunSettings, Task, main, setting
from ppo_mask.training import SelfPlay

SIZE = 6
CELLS = SIZE * SIZE
DIRECTIONS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


def _rays() -> np.ndarray:
    """For each cell and direction, the cells that follow it; ``CELLS`` is outside of the board."""
    rays = np.full((CELLS, len(DIRECTIONS), SIZE), CELLS)
    for cell in range(CELLS):
        for number, (down, right) in enumerate(DIRECTIONS):
            for step in range(1, SIZE):
                row, column = cell // SIZE + step * down, cell % SIZE + step * right
                if row in range(SIZE) and column in range(SIZE):
                    rays[cell, number, step - 1] = SIZE * row + column
    return rays


RAYS = _rays()


class Position(eqx.Module):
    """A position of Othello.

    Attributes:
        board: 1 where player 0 has a stone, -1 where player 1 has one, else 0.
        player: whose turn it is.
    """

    board: Int[Array, " cells"]
    player: Int[Array, ""]


def turned(board: Array, side: Array) -> Array:
    """Returns how many stones a stone of a side would turn, from each cell in each direction."""
    line = side * jnp.append(board, 0)[RAYS]
    theirs = jnp.cumprod(line == -1, axis=-1).sum(-1)
    closed = jnp.take_along_axis(line, theirs[..., None], axis=-1)[..., 0] == 1
    return jnp.where(closed, theirs, 0)


class Othello(AbstractGame[Position]):
    """Othello on 6 × 6 cells. Actions are the cells row by row, and 36, to pass.

    A stone must turn at least one stone of the opponent; only who cannot do so passes. The game
    ends when neither player can move; who has more stones wins.

    The observation has two planes: the player's own stones, and the opponent's.
    """

    num_actions: int = eqx.field(static=True, default=CELLS + 1, init=False)
    num_players: int = eqx.field(static=True, default=2, init=False)

    def deal(self, key: Any) -> tuple[Position, Turn]:
        """Begins with four stones."""
        board = jnp.zeros((SIZE, SIZE), jnp.int32)
        board = board.at[2:4, 2:4].set(jnp.array([[-1, 1], [1, -1]]))
        return self._turn(Position(board.ravel(), jnp.int32(0)))

    def move(self, key: Any, state: Position, action: Any) -> tuple[Position, Turn]:
        """Puts a stone, and turns the stones between it and others of its side."""
        board, side = state.board, 1 - 2 * state.player
        cell = jnp.minimum(action, CELLS - 1)
        of_ray = jnp.arange(SIZE) < turned(board, side)[cell][:, None]
        to_turn = jnp.where(of_ray, jnp.asarray(RAYS)[cell], CELLS)
        after = board.at[to_turn].set(side, mode="drop").at[cell].set(side)
        board = jnp.where(action == CELLS, board, after)
        return self._turn(Position(board, 1 - state.player))

    def observe(self, state: Position, player: Any) -> Float[Array, "6 6 2"]:
        """Shows the board from the player's side."""
        mine = state.board * (1 - 2 * player)
        return jnp.stack([mine == 1, mine == -1], -1).reshape(SIZE, SIZE, 2).astype(jnp.float32)

    def draw(self, state: Position) -> str:
        """Draws the stones of player 0 as x, those of player 1 as o."""
        rows = np.asarray(state.board).reshape(SIZE, SIZE)
        lines = [" ".join(".xo"[cell] for cell in row) for row in rows]
        return "\n".join([*lines, f"{'xo'[int(state.player)]} to move"])

    def _turn(self, state: Position) -> tuple[Position, Turn]:
        side = 1 - 2 * state.player
        empty = state.board == 0
        mine, theirs = (empty & (turned(state.board, x) > 0).any(-1) for x in (side, -side))
        is_over = ~(mine.any() | theirs.any())
        gain = jnp.where(is_over, jnp.sign(state.board.sum()), 0).astype(jnp.float32)
        mask = jnp.append(mine, ~mine.any()) | is_over
        return state, Turn(state.player, mask, jnp.stack([gain, -gain]), is_over)


@dataclasses.dataclass(frozen=True)
class Settings:
    """The opponents."""

    pool: int = setting(4, "opponents side by side: older copies, and random play", at_least=2)
    renew_every: int = setting(10, "updates between two copies", at_least=1)


def make_curriculum(settings: Settings) -> SelfPlay:
    """Older copies and random play are the opponents of training."""
    every, size = settings.renew_every, settings.pool
    return SelfPlay(lambda env: env.opponent, every, size, share=0.6, fixed=(random_opponent,))


TASK = Task[Settings](lambda _: Seat(Othello(), random_opponent), curriculum=make_curriculum)
DEFAULTS = RunConfig(
    Settings(),
    pm.PPO(num_envs=128, num_steps=64, learning_rate=1e-3, gamma=1.0, ent_coef=0.03),
    run=RunSettings(total_timesteps=1_000_000),
)

if __name__ == "__main__":
    raise SystemExit(main(TASK, DEFAULTS))
