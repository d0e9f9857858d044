"""A curriculum for HackMatrix: in which stage training games begin."""

import dataclasses
from typing import Any, cast

import equinox as eqx
from jaxtyping import Array, Float

from hackmatrix.env import HackMatrix
from hackmatrix.rules.game import NUM_STAGES
from ppo_mask.envs import AbstractEnv, Schedule
from ppo_mask.runner import Phases

STAGES = tuple(str(stage) for stage in range(1, NUM_STAGES + 1))


class StartingStages(eqx.Module):
    """A :data:`ppo_mask.envs.Curriculum` of the stages that games begin in.

    Attributes:
        schedule: a weight for each stage.
    """

    schedule: Schedule

    def __call__(self, env: AbstractEnv[Any], progress: Float[Array, ""]) -> AbstractEnv[Any]:
        """The game with the weights of this progress."""
        weights = self.schedule(progress)
        return dataclasses.replace(cast(HackMatrix, env), starting_weights=weights)


def starting_stages(phases: Phases | None) -> StartingStages | None:
    """The curriculum that a file's phases ask for; None: games begin in stage 1.

    Raises:
        RunError: a phase names a stage that there is not.
    """
    return None if phases is None else StartingStages(phases.schedule(STAGES))
