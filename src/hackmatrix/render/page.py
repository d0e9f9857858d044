"""A replay as one HTML page that needs nothing else: no network, no build step.

The page holds each drawing of a cell once, and for each frame the numbers of its 36 cells.
"""

import json
import re
from html import escape
from importlib.resources import files
from typing import Any

from hackmatrix.actions import ACTION_NAMES, price, program_price
from hackmatrix.render import charts
from hackmatrix.render.frames import Frame, Replay
from hackmatrix.render.shapes import Drawing
from hackmatrix.render.sheet import board
from hackmatrix.render.svg import drawn, inside
from hackmatrix.render.tiles import BACKGROUND, TILE
from hackmatrix.rules.display import as_html
from hackmatrix.rules.planes import SIZE
from hackmatrix.rules.programs import CARDS


def page(replay: Replay) -> str:
    """The page of a replay, with a scrubber and the keyboard to go through it."""
    drawings: dict[str, int] = {}
    frames = [_frame(frame, drawings) for frame in replay.frames]
    rows, sums = charts.components(replay)
    data = {
        "frames": frames,
        "cells": list(drawings),
        "stages": replay.stages,
        "components": [name for name, _ in sums],
    }
    text = {
        "title": f"HackMatrix: {replay.name}, seed {replay.seed}",
        "summary": replay.summary(),
    }
    parts = {
        **{name: escape(value) for name, value in text.items()},
        "board": _empty_board(replay),
        "actions": "".join(_action(n) for n in range(len(ACTION_NAMES))),
        "marks": _marks(replay),
        "curves": charts.curves(replay),
        "knows": "" if any(frame["value"] is not None for frame in frames) else "hidden",
        "components": rows,
        "rows": "".join(_row(name, value) for name, value in sums),
        "last": str(len(frames) - 1),
        "style": _resource("replay.css"),
        "script": _resource("replay.js"),
        # "</script>" must not end the script early.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("replay.html"))


def render_iframe(replay: Replay) -> str:
    """The page of a replay in a frame of its own, for a notebook."""
    return (
        f'<iframe srcdoc="{escape(page(replay))}" width="100%" height="760" '
        'style="border:0"></iframe>'
    )


as_html.register(Replay, render_iframe)


def _resource(name: str) -> str:
    return files("hackmatrix.render").joinpath(name).read_text(encoding="utf-8")


def _empty_board(replay: Replay) -> str:
    """The board's SVG, its cells as in the first frame; the script changes them."""
    cells = board(replay.frames[0].scene)
    return drawn(Drawing(SIZE * TILE, SIZE * TILE, BACKGROUND, "the board", tuple(cells)))


def _frame(frame: Frame, drawings: dict[str, int]) -> dict[str, Any]:
    scene = frame.scene
    cells = [drawings.setdefault(inside(cell), len(drawings)) for cell in board(scene)]
    decision = frame.decision
    return {
        "cells": cells,
        "values": [*(f"{value}" for _, value in scene.values()), "  ".join(scene.flags())],
        "programs": [_card(number) for number in scene.programs],
        "allowed": frame.allowed,
        "action": frame.action,
        "choice": decision.action if decision else None,
        "probabilities": _rounded(decision.probabilities) if decision else None,
        "value": None if decision is None else decision.value,
        "return": round(frame.return_, 4),
        "rewards": {name: round(value, 4) for name, value in frame.rewards.items() if value},
        "end": frame.end,
    }


def _rounded(probabilities: tuple[float, ...]) -> list[float]:
    return [round(p, 4) for p in probabilities]


def _card(number: int) -> str:
    card = CARDS[number]
    return f"{card.name} {price(card.credits, card.energy)}"


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


def _row(name: str, total: float) -> str:
    return f"<li><span>{escape(name)}</span><b></b><em>{total:+.2f}</em></li>"
