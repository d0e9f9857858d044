"""What a frame of an episode is, as plain values to be shown."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt8

from ppo_mask.envs._env import AbstractEnv, TimeStep
from ppo_mask.errors import RunError
from ppo_mask.jax_tools import ArrayTree


@dataclass(frozen=True)
class Svg:
    """A picture as SVG.

    Attributes:
        source: the whole element, ``<svg …>…</svg>``.
    """

    source: str


Picture: TypeAlias = str | Svg | UInt8[np.ndarray, "height width 3"]
"""A picture of a state: text, SVG, or red, green and blue of each pixel."""


def draw(env: AbstractEnv[Any], state: ArrayTree, timestep: TimeStep) -> Picture | None:
    """Draws a state; None if the environment cannot draw.

    Args:
        env: the environment, which may have a method ``draw`` of the other two arguments.
        state: the state that ``reset`` or ``step`` returned.
        timestep: the time step that came with the state.
    """
    method = getattr(env, "draw", None)
    return None if method is None else as_picture(method(state, timestep))


def as_picture(drawn: Any) -> Picture | None:
    """Converts what an environment draws to a picture.

    An array may also be gray, with or without an axis of channels; have opacity, which is dropped;
    or hold booleans, floats from 0 to 1, or other numbers from 0 to 255.

    Args:
        drawn: text, an :class:`Svg`, an array, or None.

    Raises:
        RunError: ``drawn`` is something else; the one-line message names its dtype and shape.
    """
    if drawn is None or isinstance(drawn, str | Svg):
        return drawn
    given = np.asarray(drawn)
    array = given[..., None] if given.ndim == 2 else given
    if array.dtype.kind in "buif" and array.shape[2:] in ((1,), (3,), (4,)) and array.size:
        array = np.broadcast_to(array[..., :3], (*array.shape[:2], 3))
        array = array * 255.0 if array.dtype.kind in "bf" and array.max() <= 1 else array
        if array.min() >= 0 and array.max() <= 255:
            return np.round(array).astype(np.uint8)
    raise RunError(
        f"the environment draws {given.dtype}{list(given.shape)}; a picture is text, an Svg, or an "
        "array [height, width, 3] of bytes, or of floats from 0 to 1"
    )


@dataclass(frozen=True)
class Decision:
    """What a policy decides in a state.

    Attributes:
        action: the action that the policy takes; see :class:`Frame`.
        probabilities: the probability of each action; 0 for actions that are not allowed.
        value: the return that the policy expects; None for a policy without values.
    """

    action: Any
    probabilities: tuple[float, ...]
    value: float | None


@dataclass(frozen=True)
class Frame:
    """A state in an episode, with the action that led to it.

    An action is a number; if MultiDiscrete, a tuple of numbers, which count along the mask.

    Attributes:
        step: actions taken so far.
        scene: what a person sees of the state.
        allowed: the allowed actions; none if the episode is over.
        action: the action that led to this state; None at the start.
        rewards: all reward components of that action; empty at the start.
        return_: the sum of the rewards so far.
        decision: the policy's decision; None if a person plays or the episode is over.
        end: how the episode ended, in a word or two; empty while it goes on.
    """

    step: int
    scene: Any
    allowed: tuple[int, ...]
    action: Any
    rewards: dict[str, float]
    return_: float
    decision: Decision | None
    end: str

    @property
    def reward(self) -> float:
        """The reward of the action that led to this state."""
        return sum(self.rewards.values(), start=0.0)


def name_action(action: Any, names: Sequence[str]) -> str:
    """Names an action, which has several names if MultiDiscrete."""
    return " ".join(names[int(number)] for number in np.atleast_1d(action))


def likeliest(frames: Sequence[Frame], num_actions: int, most: int) -> list[int]:
    """Returns the actions, in order, whose probability is highest at any step; ``most`` of them."""
    highest = np.zeros(num_actions)
    for frame in frames:
        if frame.decision is not None:
            highest = np.maximum(highest, frame.decision.probabilities)
    return sorted(np.argsort(-highest, kind="stable")[:most].tolist())
