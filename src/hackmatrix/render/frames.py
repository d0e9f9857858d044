"""A game as it was played, frame by frame: plain values, for pages and charts to draw."""

from dataclasses import dataclass, field
from functools import cached_property

from hackmatrix.render.scene import Scene
from hackmatrix.rules.display import as_html


@dataclass(frozen=True)
class Decision:
    """What a policy makes of a position.

    Attributes:
        action: the one that it takes.
        probabilities: of all actions; 0 for those not allowed.
        value: the return that it expects; None if it knows none.
    """

    action: int
    probabilities: tuple[float, ...]
    value: float | None


@dataclass(frozen=True)
class Frame:
    """A position in a game, and how it came about.

    Attributes:
        step: actions taken so far.
        scene: what is seen.
        allowed: the actions that are; none where the game is over.
        action: the one that led here; None at the start.
        rewards: what it brought: all components, also those that are 0; empty at the start.
        return_: sum of the rewards so far.
        decision: what the policy makes of it; None for a person, and where the game is over.
        end: how the game ended, in a word or two; empty while it is running.
    """

    step: int
    scene: Scene
    allowed: tuple[int, ...]
    action: int | None
    rewards: dict[str, float]
    return_: float
    decision: Decision | None
    end: str

    @property
    def reward(self) -> float:
        """What the action brought in all."""
        return sum(self.rewards.values(), start=0.0)


@dataclass(frozen=True)
class Replay:
    """A game from its start, as far as it was played.

    Attributes:
        name: who played it.
        seed: of the game.
        frames: at least one.
    """

    name: str
    seed: int
    frames: list[Frame] = field(repr=False)

    @cached_property
    def stages(self) -> list[tuple[int, int]]:
        """The steps at which a stage began, and which stage it was."""
        marks: list[tuple[int, int]] = []
        for frame in self.frames:
            if not marks or frame.scene.stage != marks[-1][1]:
                marks.append((frame.step, frame.scene.stage))
        return marks

    def summary(self) -> str:
        """One line about the game."""
        last = self.frames[-1]
        return (
            f"{self.name}, seed {self.seed}: {last.end or 'not over'} in stage {last.scene.stage} "
            f"after {last.step} steps, score {last.scene.score}, return {last.return_:.2f}"
        )

    def _repr_html_(self) -> str | None:
        """A notebook's page of the game."""
        return as_html(self)
