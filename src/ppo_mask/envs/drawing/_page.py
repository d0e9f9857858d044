"""The self-contained HTML page that shows an episode.

The page stores each distinct picture, or piece of a picture, once; each frame refers to its pieces
by number. The page's script draws the charts.
"""

import base64
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np

from ppo_mask.envs.drawing._frames import Frame, Picture, Svg, likeliest
from ppo_mask.envs.drawing._gif import as_image

_WIDTH = 480
_MOST_ACTIONS = 32


def html(picture: Picture) -> str:
    """A picture as an element of a page.

    Raises:
        RunError: the picture is an array, and Pillow is not installed.
    """
    if isinstance(picture, str):
        # Escape codes color text in a terminal; here they only highlight it.
        marked = re.sub(
            r"\x1b\[([\d;]*)m",
            lambda code: "<mark>" if code[1].strip("0;") else "</mark>",
            escape(picture),
        )
        return f"<pre>{marked}</pre>"
    kind, out = "svg+xml", BytesIO()
    if isinstance(picture, Svg):
        out.write(picture.source.encode(errors="replace"))
    else:
        kind, width = "png", picture.shape[1]
        # A small picture is enlarged; others only shrink.
        shown = _WIDTH if 2 * width <= _WIDTH else min(width, _WIDTH)
        as_image(picture, shown).save(out, kind, optimize=True)
    # As an image, an SVG scales, and runs no scripts.
    return (
        f'<img alt="" src="data:image/{kind};base64,{base64.b64encode(out.getvalue()).decode()}">'
    )


def page(
    frames: Sequence[Frame],
    pieces: Sequence[Sequence[str]],
    actions: Sequence[str],
    *,
    title: str,
    summary: str,
    scenery: str = "<div data-piece></div>",
    marks: Sequence[tuple[int, int]] = (),
    marked: str = "",
) -> str:
    """Makes the page of an episode, with a slider and keys to move through the frames.

    Args:
        frames: at least one frame.
        pieces: for each frame, the contents of each element of ``scenery`` with ``data-piece``, as
            HTML.
        actions: the name of each action, as HTML.
        title: the title.
        summary: the line below the title.
        scenery: what does not change, as HTML.
        marks: steps to jump between, each paired with its number.
        marked: what begins at the marks, such as "stage".

    Returns:
        The page, as HTML.
    """
    distinct: dict[str, int] = {}
    numbers = [[distinct.setdefault(piece, len(distinct)) for piece in each] for each in pieces]
    shown = likeliest(frames, len(actions), _MOST_ACTIONS)
    taken = {int(n) for x in frames if x.action is not None for n in np.atleast_1d(x.action)}
    brought = {name: [x.rewards.get(name, 0.0) for x in frames] for name in frames[-1].rewards}
    sums = {name: sum(values) for name, values in brought.items() if any(values)}
    of_frames = [
        _frame(frame, shown) | {"pieces": each} for frame, each in zip(frames, numbers, strict=True)
    ]
    data = {
        "frames": of_frames,
        "pieces": list(distinct),
        "marks": marks,
        "components": list(sums),
        "actions": shown,
        "among": f"{len(shown)} of {len(actions)}" if len(shown) < len(actions) else "",
        "names": {n: re.sub("<.*", "", actions[n]) for n in taken},
    }
    parts = {
        "title": escape(title),
        "summary": escape(summary),
        "scenery": scenery,
        "actions": "".join(_action(actions[n]) for n in shown),
        "marks": _marks(marks, marked, len(frames)),
        "jumps": f", Page Up and Page Down to the next {marked}" if marks else "",
        "knows": "" if any(frame["value"] is not None for frame in of_frames) else "hidden",
        "rows": "".join(
            f"<li><span>{escape(name)}</span><b></b><em>{total:+.2f}</em></li>"
            for name, total in sums.items()
        ),
        "last": str(len(frames) - 1),
        "style": _resource("page.css"),
        "script": _resource("page.js"),
        # "</script>" must not end the script early.
        "data": json.dumps(data, separators=(",", ":")).replace("<", "\\u003c"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], _resource("page.html"))


def _resource(name: str) -> str:
    return files("ppo_mask.envs.drawing").joinpath(name).read_text(encoding="utf-8")


def _frame(frame: Frame, shown: Sequence[int]) -> dict[str, Any]:
    decision = frame.decision
    return {
        "allowed": sorted({*shown} & {*frame.allowed}),  # There may be 100,000 of them.
        "num_allowed": len(frame.allowed),
        "action": frame.action,
        "choice": decision and decision.action,
        "probabilities": decision and [round(decision.probabilities[n], 4) for n in shown],
        "value": decision and decision.value,
        "return": round(frame.return_, 4),
        "rewards": {name: round(value, 4) for name, value in frame.rewards.items() if value},
        "end": frame.end,
    }


def _action(name: str) -> str:
    return (
        f'<li><span class="name">{name}</span>'
        '<span class="bar"><i></i></span><span class="share"></span></li>'
    )


def _marks(marks: Sequence[tuple[int, int]], marked: str, num_frames: int) -> str:
    length = max(num_frames - 1, 1)
    return "".join(
        f'<button type="button" data-step="{step}" style="left:{100 * step / length:.3f}%" '
        f'title="{marked} {number} begins at step {step}">{number}</button>'
        for step, number in marks
    )
