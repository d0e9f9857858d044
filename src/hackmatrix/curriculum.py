"""Training games, which may differ from the original game in their starts and rewards.

Evaluations always play the original game.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from hackmatrix.env import HackMatrix
from hackmatrix.rules.game import NUM_STAGES
from hackmatrix.rules.rewards import COMPONENTS, Shaping
from hackmatrix.rules.starts import HeadStart
from ppo_mask.envs import AbstractEnv
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import number_settings
from ppo_mask.networks import AbstractActorCritic
from ppo_mask.runner import Structured, did_you_mean, finite_number, load_yaml
from ppo_mask.training import AbstractCurriculum, Schedule

_KEPT_OF_MEMORY = 0.95  # per update, so the counts cover about twenty updates

STAGES = tuple(str(stage) for stage in range(1, NUM_STAGES + 1))


class TrainingGames(eqx.Module):
    """A :data:`ppo_mask.training.Curriculum` for the game.

    Attributes:
        stages: the relative frequency of each starting stage; None for always stage 1.
        head_start: extras that some games begin with.
        shaping: how the reward differs from the original reward.
    """

    stages: Schedule | None = None
    head_start: HeadStart | None = None
    shaping: Shaping | None = None

    def __call__(self, env: AbstractEnv[Any], progress: Float[Array, ""]) -> AbstractEnv[Any]:
        """Returns the game for this progress of the training, from 0 to 1."""
        return dataclasses.replace(
            cast(HackMatrix, env),
            starting_weights=None if self.stages is None else self.stages(progress),
            head_start=self.head_start,
            shaping=self.shaping,
        )


class AdaptiveStages(AbstractCurriculum):
    """Lets some games begin where there is most to learn: in stages completed half the time.

    Counts how many recent games completed each stage, and how many died in it. A stage that is
    completed with probability p gets the weight p (1 - p).

    Attributes:
        games: how training games differ from the original game apart from these starting stages.
        share: the share of games whose starting stage is sampled by these weights; the other games
            begin as ``games`` says.
    """

    games: TrainingGames
    share: Float[Array, ""]

    @number_settings()
    def init(self, model: AbstractActorCritic) -> Float[Array, "2 stages"]:
        """Starts both counts at 0: games that completed each stage, and games that died in it."""
        del model
        return jnp.zeros((2, NUM_STAGES))

    @number_settings()
    def update(
        self,
        memory: Float[Array, "2 stages"],
        info: Mapping[str, Array],
        ended: Bool[Array, "steps envs"],
    ) -> Float[Array, "2 stages"]:
        """See :class:`ppo_mask.training.AbstractCurriculum`."""
        del ended  # A game that is cut off says nothing about its stage.
        stages = jnp.arange(1, NUM_STAGES + 1)
        before = info["stage"] - (info["stage_completed"] & ~info["won"])

        def count(events: Bool[Array, "steps envs"]) -> Float[Array, " stages"]:
            at_stage = events[..., None] & (before[..., None] == stages)
            return at_stage.sum((0, 1), dtype=jnp.float32)

        lately = jnp.stack([count(info["stage_completed"]), count(info["died"])])
        return _KEPT_OF_MEMORY * memory + lately

    @number_settings()
    def __call__(
        self, env: AbstractEnv[Any], progress: Float[Array, ""], memory: Float[Array, "2 stages"]
    ) -> AbstractEnv[Any]:
        """Returns the game for this progress of the training, from 0 to 1."""
        game = cast(HackMatrix, self.games(env, progress))
        first = game.starting_weights
        first = jnp.zeros(NUM_STAGES).at[0].set(1.0) if first is None else first / first.sum()
        completed, died = memory
        chance = (completed + 1) / (completed + died + 2)
        chosen = chance * (1 - chance)
        weights = (1 - self.share) * first + self.share * chosen / chosen.sum()
        return dataclasses.replace(game, starting_weights=weights)


@dataclasses.dataclass(frozen=True)
class RewardWeights(Structured):
    """Factors of reward components, as a setting: ``kills=0.5,step_penalty=0``, or a YAML file.

    Attributes:
        factors: a factor for each named component; the others get 1.
    """

    factors: Mapping[str, float]

    @classmethod
    def from_text(cls, text: str) -> "RewardWeights":
        """See :class:`ppo_mask.runner.Structured`."""
        if "=" not in text:
            return cls.from_plain(load_yaml(Path(text)), text)
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
