"""The recordings of the original game in ``tests/data``, in a form that can be compared."""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hackmatrix.rules.rewards import COMPONENTS

DATA = Path(__file__).parents[1] / "data"
NOTHING = [0, 0, -1, 0, 0, 0, 0, 0]
_NUMBERS = ("stage", "turn", "show", "calm", "step", "atk_uses", "interval", "next_task", "pending")


def read(name: str) -> list[dict[str, Any]]:
    with gzip.open(DATA / name, "rt") as file:
        return [json.loads(line) for line in file]


def layouts() -> dict[str, Any]:
    return json.loads((DATA / "layouts.json").read_text())


def recorded_observation(recorded: dict[str, Any]) -> np.ndarray:
    """A recorded observation, flat; programs and grid are recorded by their entries over 0."""
    programs, grid = np.zeros(23), np.zeros(36 * 42)
    programs[recorded["programs"]] = 1
    for index, value in recorded["grid"]:
        grid[index] = value
    return np.concatenate([recorded["player"], programs, grid])


class Outcome(NamedTuple):
    """What an action led to, without what the recordings leave out: where something spawned, and
    what a new stage looks like."""

    facts: str
    mask: list[int] | None  # None where it depends on that
    reward: list[float]

    def agrees(self, recorded: "Outcome") -> bool:
        """Whether it is the recorded outcome."""
        return (
            self.facts == recorded.facts
            and recorded.mask in (None, self.mask)
            and bool(np.allclose(self.reward, recorded.reward, rtol=0, atol=1e-3))
        )


def recorded_outcome(recorded: dict[str, Any]) -> Outcome:
    state = recorded["state"]
    spawned = [kind for *kind, number in state.get("spawned", []) for _ in range(number)]
    flags = [bool(recorded[name]) for name in ("success", "advanced", "won", "died")]
    facts = _facts(state, state["transmissions"], spawned, flags)
    return Outcome(facts, recorded["mask"], recorded["reward"])


def outcome(
    position: dict[str, Any],
    born: Sequence[bool],
    flags: dict[str, Any],
    mask: Sequence[int],
    reward: dict[str, Any],
) -> Outcome:
    """A step's outcome as it would have been recorded.

    Args:
        position: the one after the step.
        born: of each transmission in it, whether it appeared in this step.
        flags: ``invalid_action``, ``stage_completed``, ``won`` and ``died``.
        mask: the valid actions after the step.
        reward: the components by name.
    """
    came = list(zip(position["transmissions"], born, strict=True))
    known = [each for each, new in came if not new]
    spawned = [[turns, *origin] for (_, _, turns, _, *origin), new in came if new]
    names = ("stage_completed", "won", "died")
    on = [not flags["invalid_action"], *(bool(flags[name]) for name in names)]
    components = [float(reward[name]) for name in COMPONENTS]
    return Outcome(_facts(position, known, spawned, on), sorted(mask), components)


def _facts(state: dict[str, Any], known: list[Any], spawned: list[Any], flags: list[bool]) -> str:
    _, advanced, won, _ = flags
    new_stage = advanced and not won
    cells = [] if new_stage else sorted(cell for cell in state["cells"] if cell[2:] != NOTHING)
    return str(
        (
            *(state[name] for name in (*_NUMBERS, "player")),
            sorted(state["owned"]),
            [-1, -1] if new_stage else state["exit"],
            flags,
            cells,
            *map(sorted, (state["enemies"], known, spawned)),
        )
    )
