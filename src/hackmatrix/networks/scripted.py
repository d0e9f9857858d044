"""Scripted policies, to watch right after installing and as baselines.

Scripted policies are actor-critics, so they play wherever a network can. Like a network, they see
only the observation and the mask.
"""

from collections.abc import Callable
from typing import Any, TypeAlias, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hackmatrix.actions import FIRST_PROGRAM, NUM_ACTIONS
from hackmatrix.networks.features import ways_to_exit
from hackmatrix.observation import CELL_DIVISORS, Observation, cell_channels, channels, compress
from hackmatrix.rules import paths
from hackmatrix.rules.planes import NUM_DIRECTIONS, SIZE, Plane, single
from hackmatrix.rules.programs import Program
from ppo_mask.jax_tools import number_settings
from ppo_mask.networks import AbstractActorCritic, MaskedCategorical

_NO_VALUE = float("nan")
# The logit of all actions but the best, so that their probabilities are exactly 0.
_NEVER = -1e9
# More than any distance.
_FAR = 2.0 * SIZE


_Mask: TypeAlias = Bool[Array, " actions"]
_Logits: TypeAlias = Float[Array, " actions"]


@final
class Scripted(AbstractActorCritic):
    """A policy without parameters. The value that it returns is NaN.

    Attributes:
        logits: computes the logits of all actions; the mask is applied later.
    """

    logits: Callable[[Observation, _Mask], _Logits] = eqx.field(static=True)

    @property
    def hyperparameters(self) -> dict[str, Any]:
        """Empty: a scripted policy is not saved."""
        return {}

    @number_settings()
    def __call__(
        self, observation: Observation, action_mask: Bool[Array, " actions"]
    ) -> tuple[MaskedCategorical, Float[Array, ""]]:
        """See :class:`ppo_mask.networks.AbstractActorCritic`."""
        logits = self.logits(observation, action_mask)
        return MaskedCategorical(logits, action_mask), jnp.float32(_NO_VALUE)


def _greedy_exit(observation: Observation, mask: _Mask) -> _Logits:
    return _best(_on_moves(_View(observation).ways().astype(jnp.float32)), mask)


def _fighter(observation: Observation, mask: _Mask) -> _Logits:
    view = _View(observation)
    enemy, transmission = view.targets()
    moves = jnp.select(
        [enemy < _FAR, transmission < _FAR, view.ways()],
        [4 * _FAR - enemy, 2 * _FAR - transmission, jnp.ones(NUM_DIRECTIONS)],
    )
    reset = jnp.where(view.hp == 1, 2.0, 0.0)
    return _best(_on_moves(moves).at[FIRST_PROGRAM + Program.RESET].set(reset), mask)


SCRIPTED: dict[str, AbstractActorCritic] = {
    "greedy-exit": Scripted(_greedy_exit),
    "fighter": Scripted(_fighter),
}
"""The scripted policies by name.

- ``greedy-exit``: takes a shortest path around the blocks to the exit, and attacks whoever is on
  the path. Without such a path, it takes the first allowed action.
- ``fighter``: attacks the nearest enemy in its line of fire, else the nearest transmission there.
  Of equally near enemies it attacks the one with the fewest hp. With nobody in its line of fire, it
  runs RESET at hp 1 if allowed, and otherwise goes to the exit as ``greedy-exit`` does.
"""


class _View:
    """The facts that the scripts read from an observation."""

    def __init__(self, observation: Observation) -> None:
        compact = compress(observation)
        row, col, self.hp = compact.player[:3].astype(jnp.int32)
        self.cell = SIZE * row + col
        self.blocks = compact.plane("data", "program_block", "question")
        self.exit = compact.plane("exit")
        self.transmissions = compact.plane("turns")
        self.enemies = compact.plane("enemy_type")
        hp = channels("enemy_hp")
        self.enemy_hp = cell_channels(compact.cells, hp)[:, 0] / CELL_DIVISORS[hp]

    def ways(self) -> Bool[Array, " directions"]:
        """For each direction, whether a shortest walk to the exit starts in that direction."""
        return ways_to_exit(single(self.cell), self.blocks, self.exit)[0]

    def targets(self) -> tuple[Float[Array, " directions"], Float[Array, " directions"]]:
        """For each direction, the distances of the enemy and transmission that a move would hit.

        A distance is ``_FAR`` if there is nothing to hit. Each hp of an enemy adds a little to its
        distance, so that of equally near enemies the weakest counts as the nearest.
        """
        solid = self.enemies | self.transmissions | self.blocks
        rays = paths.line(single(self.cell), solid)

        def distances(of: Plane) -> Float[Array, " directions"]:
            hits = [ray & of for ray in rays]
            steps = [paths.manhattan(self.cell, hit.lowest()) for hit in hits]
            return jnp.stack(
                [jnp.where(h.any(), s, _FAR) for h, s in zip(hits, steps, strict=True)]
            )

        # The hp always add less than one step.
        tenths = jnp.stack([self.enemy_hp[(ray & self.enemies).lowest()] / 10 for ray in rays])
        enemy = distances(self.enemies & ~self.transmissions)
        return jnp.where(enemy < _FAR, enemy + tenths, _FAR), distances(self.transmissions)


def _on_moves(worth: Float[Array, " directions"]) -> _Logits:
    return jnp.zeros(NUM_ACTIONS).at[:NUM_DIRECTIONS].set(worth)


def _best(worth: _Logits, mask: _Mask) -> _Logits:
    """Logits that choose the allowed action of highest ``worth``; of several such, the first."""
    best = jnp.argmax(jnp.where(mask, worth, -1.0))
    return jnp.full(NUM_ACTIONS, _NEVER).at[best].set(0.0)
