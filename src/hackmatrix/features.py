"""What the default network is shown of an observation: the board from where the player stands.

In the flat observation the player is two numbers and everything else is tied to cells of the board,
so "an enemy to my left" is a different pattern on each of the 36 cells, and a plain MLP has to
learn each of them. Everything here is computed from the observation alone, and nothing that it
holds is left out.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from hackmatrix import paths
from hackmatrix.observation import CHANNELS, PLAYER_FEATURES, channels
from hackmatrix.planes import NUM_CELLS, NUM_DIRECTIONS, SIZE, Plane, pack, single
from hackmatrix.programs import NUM_PROGRAMS

_DISTANCE_SCALE = 10.0
_PROGRAM = channels("program")
# What a player that looks along a line wants to know of whom it sees.
_TARGET_FIELDS = ("enemy_type", "enemy_hp", "stunned", "from_siphon", "turns")
_TARGET = [i for name in _TARGET_FIELDS for i in range(CHANNELS)[channels(name)]]

NUM_PLAYER_FEATURES = PLAYER_FEATURES + NUM_PROGRAMS
NUM_AROUND_PLAYER = NUM_PLAYER_FEATURES + NUM_DIRECTIONS * (len(_TARGET) + 2) + 1
NUM_FEATURES = NUM_AROUND_PLAYER + NUM_CELLS * (CHANNELS - NUM_PROGRAMS) + NUM_PROGRAMS * 3


class Features(NamedTuple):
    """An observation, seen from the player.

    Attributes:
        player: the player's own numbers and the programs it owns.
        cells: the board's cells without their programs, rolled so that the player's is the first:
            cell 6 r + c is r rows above and c columns to the right of it, and past the edge of the
            board it goes on at the other side.
        programs: where the block with each program is: rows above and columns to the right of the
            player, in boards, and 1; zeros if there is none. A stage has no program twice.
        targets: for each direction, whom a move that way would hit: an enemy's or transmission's
            channels; zeros if nobody.
        edges: for each direction, whether the board ends there.
        ways: for each direction, whether a shortest walk to the exit begins with it.
        distance: the length of that walk, in tens of steps.
    """

    player: Float[Array, " player_features"]
    cells: Float[Array, "cells channels"]
    programs: Float[Array, "programs 3"]
    targets: Float[Array, "directions target_channels"]
    edges: Float[Array, " directions"]
    ways: Float[Array, " directions"]
    distance: Float[Array, ""]

    def flat(self) -> Float[Array, " features"]:
        """All of them as one vector."""
        return jnp.concatenate([jnp.reshape(x, -1) for x in self])

    def around_player(self) -> Float[Array, " around"]:
        """As one vector, all that is not said of cells one by one."""
        rest = (self.player, self.targets, self.edges, self.ways, self.distance)
        return jnp.concatenate([jnp.reshape(x, -1) for x in rest])


def features(observation: Float[Array, " observation"]) -> Features:
    """The features of one observation."""
    player = observation[:NUM_PLAYER_FEATURES]
    cells = observation[NUM_PLAYER_FEATURES:].reshape(NUM_CELLS, CHANNELS)
    row, col = place_of(observation)
    cell = SIZE * row + col
    here = single(cell)
    blocks = plane_of(cells, "data", "program_block", "question")
    ways, distance = ways_to_exit(here, blocks, plane_of(cells, "exit"))
    return Features(
        player=player,
        cells=rolled(
            jnp.concatenate([cells[:, : _PROGRAM.start], cells[:, _PROGRAM.stop :]], axis=1),
            row,
            col,
        ),
        programs=_programs(cells[:, _PROGRAM], row, col),
        targets=_targets(cells, here, blocks),
        edges=(~paths.neighbour_flags(cell)).astype(jnp.float32),
        ways=ways,
        distance=distance,
    )


def _flags(values: list[Array]) -> Float[Array, " n"]:
    return jnp.stack(values).astype(jnp.float32)


def plane_of(cells: Float[Array, "cells channels"], *names: str) -> Plane:
    """The cells on which one of the fields is not 0."""
    found = [jnp.any(cells[:, channels(name)] != 0, axis=-1) for name in names]
    return pack(jnp.any(jnp.stack(found), axis=0))


def place_of(
    observation: Float[Array, " observation"],
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """The player's row and column."""
    row, col = jnp.round(observation[:2] * (SIZE - 1)).astype(jnp.int32)
    return row, col


def rolled(
    cells: Float[Array, "cells channels"], row: Int[Array, ""], col: Int[Array, ""]
) -> Float[Array, "cells channels"]:
    """The cells, rolled so that the one in this row and column is the first."""
    index = jnp.arange(SIZE)
    rows, cols = (index + row) % SIZE, (index + col) % SIZE
    return cells[(SIZE * rows[:, None] + cols).reshape(-1)]


def _programs(
    held: Float[Array, "cells programs"], row: Int[Array, ""], col: Int[Array, ""]
) -> Float[Array, "programs 3"]:
    cell = jnp.arange(NUM_CELLS)
    place = jnp.stack([(cell // SIZE - row) / SIZE, (cell % SIZE - col) / SIZE, cell * 0 + 1], 1)
    return jnp.sum(held[:, :, None] * place[:, None, :], axis=0)


def _targets(
    cells: Float[Array, "cells channels"], here: Plane, blocks: Plane
) -> Float[Array, "directions target_channels"]:
    entities = plane_of(cells, "enemy_type", "turns")
    hits = [ray & entities for ray in paths.line(here, entities | blocks)]
    shown = cells[:, jnp.array(_TARGET)]
    return jnp.stack([jnp.where(hit.any(), shown[hit.lowest()], 0.0) for hit in hits])


def ways_to_exit(
    here: Plane, blocks: Plane, exit: Plane
) -> tuple[Float[Array, " directions"], Float[Array, ""]]:
    """Whether a shortest walk to the exit begins with each direction, and its length in tens."""
    first, steps = paths.first_met(exit, ~blocks, here.neighbours())
    distance = jnp.where(first.any(), (steps + 1) / _DISTANCE_SCALE, 0.0)
    return _flags([(there & first).any() for there in here.shifts()]), distance
