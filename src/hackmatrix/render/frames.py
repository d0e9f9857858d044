"""What there is to see of a game at one of its steps: plain values, for others to draw."""

from dataclasses import dataclass

from hackmatrix.render.scene import Scene


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
