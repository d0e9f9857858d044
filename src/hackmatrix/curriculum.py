"""Training games, which may differ from the original game in their starts and rewards.

Evaluations always play the original game.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, cast, final

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
from ppo_mask.networks import Model
from ppo_mask.runner import Structured, did_you_mean, finite_number, load_yaml
from ppo_mask.training import AbstractCurriculum

_KEPT_OF_MEMORY = 0.95  # per update, so the counts cover about twenty updates

STAGES = tuple(str(stage) for stage in range(1, NUM_STAGES + 1))


class TrainingGames(eqx.Module):
    """A :data:`ppo_mask.training.Curriculum` that sets the starts and rewards of training games.

    Attributes:
        stages: the relative frequency of each starting stage; None for always stage 1.
        head_start: extras that some games begin with.
        shaping: how the reward differs from the original reward.
    """

    stages: Float[Array, "stages"] | None = None
    head_start: HeadStart | None = None
    shaping: Shaping | None = None

    def __call__(self, env: AbstractEnv[Any], progress: Float[Array, ""]) -> AbstractEnv[Any]:
        """Returns the game for this progress of the training, from 0 to 1."""
        return dataclasses.replace(
            cast(HackMatrix, env),
            starting_weights=self.stages,
            head_start=self.head_start,
            shaping=self.shaping,
        )


class AdaptiveStages(AbstractCurriculum):
    """Lets some games begin where there is most to learn: in stages that half the games complete.

    Counts how many recent games completed each stage, and how many died in it. A stage that is
    completed with probability p gets the weight p (1 - p).

    Attributes:
        games: how training games differ from the original game otherwise.
        share: the share of games whose starting stage is sampled by these weights; the other games
            begin as ``games`` says.
    """

    games: TrainingGames
    share: Float[Array, ""]

    @number_settings()
    def init(self, model: Model) -> Float[Array, "2 stages"]:
        """Starts at 0: how many games completed each stage, and how many died in it."""
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
class _AbstractNumbers(Structured):
    """A setting that maps names to numbers, such as ``kills=0.5,step_penalty=0``, or a YAML file.

    Attributes:
        given: the given numbers, by name.
    """

    given: Mapping[str, float]
    names: ClassVar[tuple[str, ...]]
    what: ClassVar[str]  # what a name stands for, in errors
    otherwise: ClassVar[float]  # the number of a name that is not given
    are_frequencies: ClassVar[bool]

    @classmethod
    def from_text(cls, text: str) -> "_AbstractNumbers":
        """See :class:`ppo_mask.runner.Structured`."""
        if "=" not in text:
            return cls.from_plain(load_yaml(Path(text)), text)
        pairs = (entry.partition("=") for entry in text.split(","))
        return cls.from_plain({name.strip(): value for name, _, value in pairs}, text)

    @classmethod
    def from_plain(cls, plain: object, called: str) -> "_AbstractNumbers":
        """See :class:`ppo_mask.runner.Structured`."""
        if not isinstance(plain, Mapping):
            raise RunError(f"{called} must hold '{cls.what}: number' lines, got {plain!r}")
        given: dict[str, float] = {}
        for key, raw in cast(Mapping[Any, Any], plain).items():
            name = str(key)
            if name not in cls.names:
                raise RunError(
                    f"{called}: there is no {cls.what} {name}{did_you_mean(name, cls.names)}; "
                    f"there are {', '.join(cls.names)}"
                )
            given[name] = finite_number(raw, f"{called}: {name}")
        some = [number for number in given.values() if number]
        if cls.are_frequencies and (not some or min(some) < 0):
            raise RunError(f"{called}: numbers must be at least 0, and one must be more than 0")
        return cls(given)

    def to_plain(self) -> dict[str, float]:
        """See :class:`ppo_mask.runner.Structured`."""
        return dict(self.given)

    def as_array(self) -> Float[Array, "names"]:
        """All numbers, in the order of ``names``."""
        return jnp.array([self.given.get(name, self.otherwise) for name in self.names], jnp.float32)


@final
class RewardWeights(_AbstractNumbers):
    """Factors of reward components; a component without a factor gets 1."""

    names, what, otherwise, are_frequencies = COMPONENTS, "reward component", 1.0, False


@final
class StartingStages(_AbstractNumbers):
    """The relative frequencies of starting stages; a stage that is not named gets 0."""

    names, what, otherwise, are_frequencies = STAGES, "stage", 0.0, True
