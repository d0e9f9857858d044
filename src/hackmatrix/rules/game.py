"""What a game is: one position, taken apart, as the rules see it."""

import dataclasses
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int, Int8, UInt32

from hackmatrix.rules.entities import Entities, no_entities
from hackmatrix.rules.planes import NUM_CELLS, Plane, empty, row_and_col
from ppo_mask.jax_tools import number_settings

NUM_STAGES = 8
MAX_HP = 3
FIRST_INTERVAL = 12
NO_PROGRAM = -1

Tree = TypeVar("Tree")


class Player(eqx.Module):
    """The player; ``cell`` is 6 * row + col."""

    cell: Int[Array, ""]
    hp: Int[Array, ""]
    credits: Int[Array, ""]
    energy: Int[Array, ""]
    data_siphons: Int[Array, ""]
    score: Int[Array, ""]
    attack: Int[Array, ""]

    @property
    def row(self) -> Int[Array, ""]:
        """0 at the bottom."""
        return row_and_col(self.cell)[0]

    @property
    def col(self) -> Int[Array, ""]:
        """0 at the left."""
        return row_and_col(self.cell)[1]


class Board(eqx.Module):
    """The 36 cells but for who stands on them.

    Attributes:
        data: cells with a data block, hidden ones too.
        program_blocks: cells with a program block, hidden ones too.
        question: blocks of either sort whose content is hidden.
        pickups: cells with a data siphon to pick up.
        exits: the cell that looks like the exit. It is where ``Game.exit`` says in every game
            that is played from its start.
        siphoned: cells that have been siphoned.
        centers: cells on which the player stood when siphoning.
        points: of a data block, else 0.
        program: of a program block, else NO_PROGRAM.
        spawn_count: transmissions that siphoning a block still brings, else 0.
        credits: lying on the cell.
        energy: lying on the cell.
        exit_steps: from the cell to the exit, see :func:`hackmatrix.rules.paths.exit_steps`.
    """

    data: Plane
    program_blocks: Plane
    question: Plane
    pickups: Plane
    exits: Plane
    siphoned: Plane
    centers: Plane
    points: Int8[Array, "cells"]
    program: Int8[Array, "cells"]
    spawn_count: Int8[Array, "cells"]
    credits: Int8[Array, "cells"]
    energy: Int8[Array, "cells"]
    exit_steps: Int8[Array, "cells"]

    @property
    def blocks(self) -> Plane:
        """Cells with a block of any sort."""
        return self.data | self.program_blocks


class Game(eqx.Module):
    """One position of one game. :class:`hackmatrix.rules.state.State` is what it is kept as.

    Attributes:
        stage: 1 to 8.
        turn: enemy turns played in this stage.
        exit: the exit's cell.
        owned: programs owned, one bit each.
        show: cryptogs are visible until the stage ends.
        calm: no scheduled spawns until the stage ends.
        step_pending: STEP was run: the next enemy turn does not happen.
        atk_uses: how often ATK+ was run in this stage.
        interval: turns between scheduled spawns.
        next_task: the turn of the next scheduled spawn.
        pending: transmissions that siphoned blocks will bring in the next enemy turn.
        births: transmissions that came into being so far; see :class:`Entities`.
        arrivals: enemy turns in which one arrived.
        steps: actions taken in this episode.
        undo_length: positions of this stage that UNDO can go back through.
        undo_newest: where in the history the newest of them is.
    """

    stage: Int[Array, ""]
    turn: Int[Array, ""]
    exit: Int[Array, ""]
    player: Player
    board: Board
    entities: Entities
    owned: UInt32[Array, ""]
    show: Bool[Array, ""]
    calm: Bool[Array, ""]
    step_pending: Bool[Array, ""]
    atk_uses: Int[Array, ""]
    interval: Int[Array, ""]
    next_task: Int[Array, ""]
    pending: Int[Array, ""]
    births: Int[Array, ""]
    arrivals: Int[Array, ""]
    steps: Int[Array, ""]
    undo_length: Int[Array, ""]
    undo_newest: Int[Array, ""]


def build(cls: type[Tree], **fields: Any) -> Tree:
    """A module of these fields, which must be all, without ``__init__`` and its checks."""
    module = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def replace(tree: Tree, **fields: Any) -> Tree:
    """A copy of a module with some fields changed.

    Like ``dataclasses.replace`` without ``__init__`` and its checks, and many times faster than
    ``eqx.tree_at``: rules change fields a hundred times a step, and that is traced.
    """
    names = [field.name for field in dataclasses.fields(tree)]  # pyright: ignore[reportArgumentType]
    if unknown := fields.keys() - set(names):
        raise TypeError(f"{type(tree).__name__} has no field {', '.join(sorted(unknown))}")
    return build(type(tree), **({name: getattr(tree, name) for name in names} | fields))


def choose(condition: Bool[Array, ""], then: Tree, otherwise: Tree) -> Tree:
    """``then`` where the condition holds, else ``otherwise``, leaf by leaf."""
    return jax.tree.map(lambda a, b: a if a is b else jnp.where(condition, a, b), then, otherwise)


def empty_board() -> Board:
    """Cells with nothing on them."""
    zeros = jnp.zeros(NUM_CELLS, jnp.int8)
    return Board(
        data=empty(),
        program_blocks=empty(),
        question=empty(),
        pickups=empty(),
        exits=empty(),
        siphoned=empty(),
        centers=empty(),
        points=zeros,
        program=jnp.full(NUM_CELLS, NO_PROGRAM, jnp.int8),
        spawn_count=zeros,
        credits=zeros,
        energy=zeros,
        exit_steps=zeros,
    )


@number_settings()
def blank_game() -> Game:
    """Stage 1 with nothing on it; the player at the bottom left, the exit at the top right.

    The ways to the exit are yet to be found.
    """
    zero, off = jnp.int32(0), jnp.bool_(False)
    return Game(
        stage=jnp.int32(1),
        turn=zero,
        exit=jnp.int32(NUM_CELLS - 1),
        player=Player(zero, jnp.int32(MAX_HP), zero, zero, zero, zero, jnp.int32(1)),
        board=empty_board(),
        entities=no_entities(),
        owned=jnp.uint32(0),
        show=off,
        calm=off,
        step_pending=off,
        atk_uses=zero,
        interval=jnp.int32(FIRST_INTERVAL),
        next_task=jnp.int32(FIRST_INTERVAL),
        pending=zero,
        births=zero,
        arrivals=zero,
        steps=zero,
        undo_length=zero,
        undo_newest=zero,
    )
