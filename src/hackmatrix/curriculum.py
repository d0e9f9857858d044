"""What differs in training games: where they begin, and what is rewarded.

Evaluation is always in the original's game.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from hackmatrix.env import HackMatrix
from hackmatrix.rules.game import NUM_STAGES
from hackmatrix.rules.rewards import COMPONENTS, Shaping
from hackmatrix.rules.starts import HeadStart
from ppo_mask.envs import AbstractEnv, Schedule
from ppo_mask.errors import RunError
from ppo_mask.runner import Structured, did_you_mean, finite_number

STAGES = tuple(str(stage) for stage in range(1, NUM_STAGES + 1))


class TrainingGames(eqx.Module):
    """A :data:`ppo_mask.envs.Curriculum` for the game.

    Attributes:
        stages: a weight for each stage that games may begin in; None for always in stage 1.
        head_start: what some games begin with; None for what the original gives.
        shaping: how the reward differs from the original's; None for not at all.
    """

    stages: Schedule | None = None
    head_start: HeadStart | None = None
    shaping: Shaping | None = None

    def __call__(self, env: AbstractEnv[Any], progress: Float[Array, ""]) -> AbstractEnv[Any]:
        """The game as it is at this progress."""
        return dataclasses.replace(
            cast(HackMatrix, env),
            starting_weights=None if self.stages is None else self.stages(progress),
            head_start=self.head_start,
            shaping=self.shaping,
        )


@dataclasses.dataclass(frozen=True)
class RewardWeights(Structured):
    """Factors of reward components, as a setting: ``kills=0.5,step_penalty=0``, or a YAML file.

    Attributes:
        factors: by component; one that is not named has 1.
    """

    factors: Mapping[str, float]

    @classmethod
    def from_text(cls, text: str) -> "RewardWeights":
        """See :class:`ppo_mask.runner.Structured`."""
        if "=" not in text:
            return super().from_text(text)
        pairs = (entry.partition("=") for entry in text.split(","))
        return cls.from_plain({name.strip(): value for name, _, value in pairs}, "--reward-weights")

    @classmethod
    def from_plain(cls, plain: object, called: str) -> "RewardWeights":
        """See :class:`ppo_mask.runner.Structured`."""
        if not isinstance(plain, Mapping):
            raise RunError(f"{called} must hold 'component: factor' lines, got {plain!r}")
        factors: dict[str, float] = {}
        for name, raw in cast(Mapping[Any, Any], plain).items():
            if name not in COMPONENTS:
                raise RunError(
                    f"{called}: there is no reward component {name}"
                    f"{did_you_mean(str(name), COMPONENTS)}; there are {', '.join(COMPONENTS)}"
                )
            factors[name] = finite_number(raw, f"{called}: {name}")
        return cls(factors)

    def to_plain(self) -> dict[str, float]:
        """See :class:`ppo_mask.runner.Structured`."""
        return dict(self.factors)

    def as_array(self) -> Float[Array, "components"]:
        """The factor of each component, in the order of ``COMPONENTS``."""
        return jnp.array([self.factors.get(name, 1.0) for name in COMPONENTS], jnp.float32)
