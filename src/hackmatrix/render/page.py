"""A replay, and the self-contained HTML page that shows it.

The page stores each distinct drawing of a cell once; each frame refers to 36 drawings by number.
"""

import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from importlib.resources import files
from typing import Any

from hackmatrix.actions import ACTION_NAMES, program_price
from hackmatrix.render import charts
from hackmatrix.render.frames import Frame
from hackmatrix.render.shapes import Drawing
from hackmatrix.render.sheet import board
from hackmatrix.render.svg import drawn, inside
from hackmatrix.render.tiles import BACKGROUND, TILE
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS


@dataclass(frozen=True)
class Replay:
    """A game from its start, as far as it was played.

    Attributes:
        name: the name of the player or policy.
        seed: the seed of the game.
        frames: at least one frame.
    """

    name: str
    seed: int
    frames: list[Frame] = field(repr=False)

    @cached_property
    def stages(self) -> list[tuple[int, int]]:
        """The first step of each stage, paired with the stage."""
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

    def _repr_html_(self) -> str:
        """The page in an iframe, for a notebook."""
        return (
            f'<iframe srcdoc="{escape(page(self))}" width="100%" height="760" '
            'style="border:0"></iframe>'
        )


def page(replay: Replay) -> str:
    """The page of a replay, with a slider and keys to move through the frames."""
    drawings: dict[str, int] = {}
    frames = [_frame(frame, drawings) for frame in replay.frames]
    rows, sums = charts.components(replay.frames, replay.stages)
    data = {
        "frames": frames,
        "cells": list(drawings),
        "stages": replay.stages,
        "components": [name for name, _ in sums],
    }
    cells = tuple(board(replay.frames[0].scene))  # The page's script changes the cells.
    parts = {
        "title": escape(f"HackMatrix: {replay.name}, seed {replay.seed}"),
        "summary": escape(replay.summary()),
        "board": drawn(Drawing(SIZE * TILE, SIZE * TILE, BACKGROUND, "the board", cells)),
        "actions": "".join(_action(n) for n in range(len(ACTION_NAMES))),
        "marks": _marks(replay),
        "curves": charts.curves(replay.frames, replay.stages),
        "knows": "" if any(frame["value"] is not None for frame in frames) else "hidden",
        "components": rows,
        "rows": "".join(
            f"<li><span>{escape(name)}</span><b></b><em>{total:+.2f}</em></li>"
            for name, total in sums
        ),
        "last": str(len(frames) - 1),
        "style": _resource("replay.css"),
        "script": _resource("replay.js"),
        # "</script>" must not end the script early.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("replay.html"))


def _resource(name: str) -> str:
    return files("hackmatrix.render").joinpath(name).read_text(encoding="utf-8")


def _frame(frame: Frame, drawings: dict[str, int]) -> dict[str, Any]:
    scene, decision = frame.scene, frame.decision
    cards = [CARDS[number] for number in scene.programs]
    return {
        "cells": [drawings.setdefault(inside(cell), len(drawings)) for cell in board(scene)],
        "values": [*(f"{value}" for _, value in scene.values()), "  ".join(scene.flags())],
        "programs": [f"{card.name} {card.price}" for card in cards],
        "allowed": frame.allowed,
        "action": frame.action,
        "choice": decision and decision.action,
        "probabilities": decision and [round(p, 4) for p in decision.probabilities],
        "value": decision and decision.value,
        "return": round(frame.return_, 4),
        "rewards": {name: round(value, 4) for name, value in frame.rewards.items() if value},
        "end": frame.end,
    }


def _action(number: int) -> str:
    cost = program_price(number)
    return (
        f'<li><span class="name">{escape(ACTION_NAMES[number])}<small>{cost}</small></span>'
        '<span class="bar"><i></i></span><span class="share"></span></li>'
    )


def _marks(replay: Replay) -> str:
    length = max(len(replay.frames) - 1, 1)
    return "".join(
        f'<button type="button" data-step="{step}" style="left:{100 * step / length:.3f}%" '
        f'title="stage {stage} begins at step {step}">{stage}</button>'
        for step, stage in replay.stages
    )
