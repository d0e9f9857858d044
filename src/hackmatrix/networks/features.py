"""Features for the default network: the board relative to the player.

The flat observation lists the cells by their place on the board. So "an enemy to my left" is a
different pattern for each of the 36 cells that the player may be on, and a plain MLP has to learn
each pattern. The features are computed from the observation alone and lose nothing except amounts
that no game reaches (:meth:`Features.packed`).
"""

from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Int8, UInt16, UInt32

from hackmatrix.observation import (
    CELL_DIVISORS,
    CHANNELS,
    DIVISORS,
    NUM_PLAYER_FEATURES,
    CompactObservation,
    Observation,
    TimeAwareObservation,
    cell_channels,
    channels,
    compress,
)
from hackmatrix.rules import paths
from hackmatrix.rules.batching import join, materialize, stack_scalars
from hackmatrix.rules.planes import (
    NUM_CELLS,
    NUM_DIRECTIONS,
    SIZE,
    Plane,
    neighbor_flags,
    row_and_col,
    single,
)
from hackmatrix.rules.programs import NUM_PROGRAMS
from ppo_mask.jax_tools import jit_inline, number_settings

PARTS = 36
"""The integer that stands for 1.0. Channels of cells are multiples of 1/3, 1/4 or 1/9."""

_DISTANCE_SCALE = 10.0
_PLAIN = np.setdiff1d(np.arange(CHANNELS), np.arange(CHANNELS)[channels("program")])
# The channels that describe the enemy or transmission that a move would attack.
_TARGET_FIELDS = ("enemy_type", "enemy_hp", "stunned", "from_siphon", "turns")
_TARGET = [i for name in _TARGET_FIELDS for i in range(CHANNELS)[channels(name)]]

_NUM_BESIDE_PLAYER = NUM_DIRECTIONS * (len(_TARGET) + 2) + 1
NUM_AROUND_PLAYER = NUM_PLAYER_FEATURES + _NUM_BESIDE_PLAYER
NUM_FEATURES = NUM_AROUND_PLAYER + NUM_CELLS * (CHANNELS - NUM_PROGRAMS) + NUM_PROGRAMS * 3

NUM_FEATURES_WITH_TIME = NUM_FEATURES + 1

# The time feature counts units of 8 actions, at most 127 units; 256 actions become 1.0.
_ACTIONS_AT_ONCE, _MOST_TIME, _TIME_SCALE = 8, 127, 32.0

# The divisor of each packed feature.
_ONE = np.full(NUM_FEATURES, PARTS, np.float32)
_ONE[:NUM_PLAYER_FEATURES] = DIVISORS[:NUM_PLAYER_FEATURES]
_ONE[-1] = _DISTANCE_SCALE
_ONE_WITH_TIME = np.append(_ONE, np.float32(_TIME_SCALE))


class Features(NamedTuple):
    """An observation relative to the player, as integers.

    ``PARTS`` stands for 1.0, except in ``player`` and ``distance``.

    Attributes:
        player: the player's own numbers, not yet scaled, and a flag for each program it owns.
        cells: the board's cells without their programs, rolled so that the player's cell is the
            first. Cell 6 r + c is r rows above and c columns to the right of the player; the board
            wraps around at its edges.
        programs: ``[up, right, 1]`` for each program: the rows and columns from the player to the
            program's block, as fractions of the board's width. Zeros if no block has the program.
            No stage has two blocks with the same program.
        targets: for each direction, the channels of the enemy or transmission that a move would
            attack; zeros for none.
        edges: for each direction, whether the player is at that edge of the board.
        ways: for each direction, whether a shortest walk to the exit starts in that direction.
        distance: the length of a shortest walk to the exit, in steps.
    """

    player: UInt16[Array, " player_features"]
    cells: Int8[Array, "cells channels"]
    programs: Int8[Array, "programs 3"]
    targets: Int8[Array, "directions target_channels"]
    edges: Int8[Array, " directions"]
    ways: Int8[Array, " directions"]
    distance: Int8[Array, ""]

    def packed(self) -> Int8[Array, " features"]:
        """All features as one vector of integers, in a quarter of the memory of floats.

        More than 127 data siphons count as 127, and an attack of more than 128 as 128.
        """
        return _join((jnp.minimum(self.player, 127).astype(jnp.int8), *self[1:]))

    def around_player(self) -> Float[Array, " around"]:
        """All features but ``cells`` and ``programs``, as one vector of floats."""
        player = self.player.astype(jnp.float32) / _ONE[:NUM_PLAYER_FEATURES]
        return jnp.concatenate([player, _join(self[3:]) / _ONE[-_NUM_BESIDE_PLAYER:]])


@number_settings()
def unpack(packed: Int8[Array, " features"]) -> Float[Array, " features"]:
    """Converts packed features to floats, in the same order; the time, if any, stays last."""
    return packed.astype(jnp.float32) / _ONE_WITH_TIME[: packed.size]


@number_settings()
def packed_with_time(observation: Observation) -> Int8[Array, " features_with_time"]:
    """The packed features of an observation, followed by one for the number of actions taken.

    Raises:
        ValueError: the observation is not time-aware.
    """
    if not isinstance(observation, TimeAwareObservation):
        raise ValueError(
            "a time-aware network needs observations with the number of actions taken: "
            "HackMatrix(time_aware=True)"
        )
    time = jnp.minimum(observation.steps // _ACTIONS_AT_ONCE, _MOST_TIME).astype(jnp.int8)
    return jnp.concatenate([features(observation).packed(), time[None]])


def _join(values: Iterable[Array]) -> Int8[Array, " n"]:
    return jnp.concatenate([jnp.reshape(x, -1) for x in values])


@number_settings()
@jit_inline
def features(observation: Observation) -> Features:
    """Computes the features of one observation."""
    compact = compress(observation)
    row, col = place_of(compact)
    cell = SIZE * row + col
    here, exit = single(cell), compact.plane("exit")
    blocks = compact.plane("data", "program_block", "question")
    ways, distance = ways_to_exit(here, blocks, exit)
    return Features(
        player=compact.player_features(),
        cells=materialize(in_parts(roll(compact), _PLAIN), row >= SIZE),
        programs=_programs(compact.cells[0], row, col),
        targets=_targets(compact, here, blocks),
        edges=_of_flags(~neighbor_flags(cell)),
        ways=_of_flags(ways),
        distance=distance.astype(jnp.int8),
    )


def in_parts(
    words: UInt32[Array, "words cells"], number: slice | np.ndarray = slice(None)
) -> Int8[Array, "cells channels"]:
    """Channels of all cells as integers, in units of 1 / ``PARTS``; see :func:`cell_channels`."""
    return (cell_channels(words, number) * (PARTS // CELL_DIVISORS[number])).astype(jnp.int8)


def _of_flags(flags: Bool[Array, " n"]) -> Int8[Array, " n"]:
    return jnp.where(flags, jnp.int8(PARTS), jnp.int8(0))


def place_of(observation: CompactObservation) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The player's row and column."""
    row, col = observation.player[:2].astype(jnp.int32)
    return row, col


def roll(observation: CompactObservation) -> UInt32[Array, "words cells"]:
    """The words of an observation's cells, rolled so that the player's cell comes first."""
    row, col = place_of(observation)
    index = jnp.arange(SIZE)
    rows, cols = (jnp.where(x < SIZE, x, x - SIZE) for x in (index + row, index + col))
    index = (SIZE * rows[:, None] + cols).reshape(-1)
    words = [word.at[index].get(mode="promise_in_bounds") for word in observation.cells]
    return materialize(jnp.stack(words), observation.player[0] >= SIZE)


def _programs(
    words: UInt32[Array, " cells"], row: Int[Array, ""], col: Int[Array, ""]
) -> Int8[Array, "programs 3"]:
    # Cells are numbered from 1. For each binary digit, `held` has the programs on the cells whose
    # number has that digit set. A program is on one cell, so its digits are those of the cell.
    bit = np.arange(NUM_CELLS.bit_length(), dtype=np.uint32)
    in_number = (np.arange(1, NUM_CELLS + 1) >> bit[:, None]) & 1 != 0
    held = join(jnp.where(in_number, words, 0))
    flags = (held >> np.arange(NUM_PROGRAMS, dtype=np.uint32)[:, None]) & 1
    number = jnp.sum(flags << bit, axis=1, dtype=jnp.int32)
    cell, step = number - 1, PARTS // SIZE
    at_row, at_col = row_and_col(cell)
    way = (at_row - row) * step, (at_col - col) * step
    place = jax.vmap(lambda *each: stack_scalars([*each, jnp.int32(PARTS)]))(*way)
    return jnp.where(number[:, None] > 0, place, 0).astype(jnp.int8)


def _targets(
    observation: CompactObservation, here: Plane, blocks: Plane
) -> Int8[Array, "directions target_channels"]:
    entities = observation.plane("enemy_type", "turns")
    hits = [ray & entities for ray in paths.line(here, entities | blocks)]
    cell = jnp.stack([hit.lowest() for hit in hits])
    found = jnp.stack([hit.any() for hit in hits])
    words = materialize(
        jnp.where(found, observation.cells[:, cell], 0), observation.player[0] >= SIZE
    )
    return in_parts(words, np.array(_TARGET))


def ways_to_exit(
    here: Plane, blocks: Plane, exit: Plane
) -> tuple[Bool[Array, " directions"], Int[Array, ""]]:
    """Finds the directions that begin a shortest walk to the exit, and the walk's length."""
    first, steps = paths.first_met(exit, ~blocks, here.neighbors())
    ways = jnp.stack([(there & first).any() for there in here.shifts()])
    return ways, jnp.where(first.any(), steps + 1, 0)
