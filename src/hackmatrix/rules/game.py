"""One position of a game, unpacked into the named fields that the rules use."""

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
MAX_TURNS = 1 << 30  # `turn` saturates here, with room for a later `next_task`

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
    """The 36 cells, without the entities on them."""

    data: Plane  # cells with a data block, hidden ones too
    program_blocks: Plane  # cells with a program block, hidden ones too
    question: Plane  # blocks of either sort whose content is hidden
    pickups: Plane  # cells with a data siphon to pick up
    exits: Plane  # cells that look like the exit; in any real game, only ``Game.exit``
    siphoned: Plane  # cells that have been siphoned
    centers: Plane  # cells on which the player stood when siphoning
    points: Int8[Array, "cells"]  # of a data block, else 0
    program: Int8[Array, "cells"]  # of a program block, else NO_PROGRAM
    spawn_count: Int8[Array, "cells"]  # transmissions that siphoning a block still brings, else 0
    credits: Int8[Array, "cells"]  # lying on the cell
    energy: Int8[Array, "cells"]  # lying on the cell
    exit_steps: Int8[Array, "cells"]  # see :func:`hackmatrix.rules.paths.exit_steps`

    @property
    def blocks(self) -> Plane:
        """Cells with a block of any sort."""
        return self.data | self.program_blocks


class Game(eqx.Module):
    """One position of one game; between steps, a :class:`hackmatrix.rules.state.State` packs it."""

    stage: Int[Array, ""]  # 1 to 8
    turn: Int[Array, ""]  # enemy turns played in this stage; saturates at MAX_TURNS
    exit: Int[Array, ""]  # the exit's cell
    player: Player
    board: Board
    entities: Entities
    owned: UInt32[Array, ""]  # programs owned, one bit each
    show: Bool[Array, ""]  # cryptogs are visible until the stage ends
    calm: Bool[Array, ""]  # no scheduled spawns until the stage ends
    step_pending: Bool[Array, ""]  # STEP was run: the next enemy turn does not happen
    atk_uses: Int[Array, ""]  # how often ATK+ was run in this stage
    interval: Int[Array, ""]  # turns between scheduled spawns
    next_task: Int[Array, ""]  # the turn of the next scheduled spawn
    pending: Int[Array, ""]  # transmissions that siphoned blocks will bring in the next enemy turn
    births: Int[Array, ""]  # transmissions spawned so far; see :class:`Entities`
    arrivals: Int[Array, ""]  # enemy turns in which a transmission arrived
    steps: Int[Array, ""]  # actions taken in this episode; saturates at 2^31 - 1
    undo_length: Int[Array, ""]  # positions of this stage that UNDO can go back through
    undo_newest: Int[Array, ""]  # the place of the newest of these positions in the history


def build(cls: type[Tree], **fields: Any) -> Tree:
    """Makes a module from all of its fields, without ``__init__`` and its checks."""
    module = object.__new__(cls)
    for name, value in fields.items():
        object.__setattr__(module, name, value)
    return module


def replace(tree: Tree, **fields: Any) -> Tree:
    """A copy of a module with some fields changed.

    Like ``dataclasses.replace``, but without ``__init__`` and its checks, and many times faster to
    trace than ``eqx.tree_at``. A step of the game calls this function a hundred times.
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
    planes = ("data", "program_blocks", "question", "pickups", "exits", "siphoned", "centers")
    numbers = ("points", "spawn_count", "credits", "energy", "exit_steps")
    return Board(
        **{name: empty() for name in planes},
        **dict.fromkeys(numbers, jnp.zeros(NUM_CELLS, jnp.int8)),
        program=jnp.full(NUM_CELLS, NO_PROGRAM, jnp.int8),
    )


@number_settings()
def blank_game() -> Game:
    """Stage 1 with an empty board; the player is at the bottom left, the exit at the top right.

    ``exit_steps`` is not computed yet.
    """
    zero, counts = jnp.int32(0), ("turn", "atk_uses", "pending", "births", "arrivals", "steps")
    return Game(
        **dict.fromkeys((*counts, "undo_length", "undo_newest"), zero),
        **{name: jnp.bool_(False) for name in ("show", "calm", "step_pending")},
        stage=jnp.int32(1),
        exit=jnp.int32(NUM_CELLS - 1),
        player=Player(zero, jnp.int32(MAX_HP), zero, zero, zero, zero, jnp.int32(1)),
        board=empty_board(),
        entities=no_entities(),
        owned=jnp.uint32(0),
        interval=jnp.int32(FIRST_INTERVAL),
        next_task=jnp.int32(FIRST_INTERVAL),
    )
