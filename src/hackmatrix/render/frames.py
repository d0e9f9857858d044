"""A step of a game as plain values, to be drawn."""

from dataclasses import dataclass

from hackmatrix.render.scene import Scene


@dataclass(frozen=True)
class Decision:
    """What a policy decides in a position.

    Attributes:
        action: the action that the policy takes.
        probabilities: the probability of each action; 0 for actions that are not allowed.
        value: the return that the policy expects; None for a policy without values.
    """

    action: int
    probabilities: tuple[float, ...]
    value: float | None


@dataclass(frozen=True)
class Frame:
    """A position in a game, with the action that led to it.

    Attributes:
        step: actions taken so far.
        scene: what a person may see of the position.
        allowed: the allowed actions; none if the game is over.
        action: the action that led to this position; None at the start.
        rewards: all reward components of that action; empty at the start.
        return_: the sum of the rewards so far.
        decision: the policy's decision; None if a person plays or the game is over.
        end: how the game ended, in a word or two; empty while the game goes on.
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
        """The reward of the action that led to this position."""
        return sum(self.rewards.values(), start=0.0)
