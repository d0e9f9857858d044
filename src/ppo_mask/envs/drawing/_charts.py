"""Charts of an episode as SVG: value, return, and reward components.

One step is one unit wide; the page stretches the charts, and moves a cursor over them.
"""

from collections.abc import Sequence

from ppo_mask.envs.drawing._frames import Frame

_HEIGHT = 100.0
_PIXELS = 150
_ROW = 19  # the height of a line of text


Marks = Sequence[tuple[int, int]]
"""The steps that are marked, each paired with its number."""


def curves(frames: Sequence[Frame], marks: Marks) -> str:
    """A chart of the return so far and the value, on one scale."""
    returns = [(frame.step, frame.return_) for frame in frames]
    values = [
        (frame.step, frame.decision.value)
        for frame in frames
        if frame.decision and frame.decision.value is not None
    ]
    heights = [y for _, y in (*returns, *values)] + [0.0]
    low, high = min(heights), max(heights)
    scale = (_HEIGHT - 8) / ((high - low) or 1)

    def line(points: Sequence[tuple[int, float]], name: str) -> str:
        path = " ".join(f"{x + 0.5:g},{_HEIGHT - 4 - (y - low) * scale:.1f}" for x, y in points)
        return f'<polyline class="{name}" points="{path}"/>' if points else ""

    zero = _HEIGHT - 4 + low * scale
    inside = f'<line class="zero" x1="0" x2="{len(frames)}" y1="{zero:.1f}" y2="{zero:.1f}"/>'
    inside += line(returns, "return") + line(values, "value")
    return _chart(len(frames), marks, inside, _HEIGHT, _PIXELS)


def components(frames: Sequence[Frame], marks: Marks) -> tuple[str, list[tuple[str, float]]]:
    """A chart with a row of marks for each component ever nonzero, and the rows' names and sums.

    The larger a reward is, relative to the largest in its row, the more opaque is its mark.
    """
    rows: list[tuple[str, float]] = []
    bars: list[str] = []
    for name in frames[-1].rewards:
        brought = [(frame.step, frame.rewards.get(name, 0.0)) for frame in frames]
        largest = max(abs(value) for _, value in brought)
        if not largest:
            continue
        y = len(rows) * _ROW
        for step, value in brought:
            if value:
                kind = "gain" if value > 0 else "loss"
                strength = 0.35 + 0.65 * abs(value) / largest
                bars.append(
                    f'<rect class="{kind}" x="{step}" y="{y + 2}" width="1" height="{_ROW - 4}" '
                    f'opacity="{strength:.2g}"/>'
                )
        rows.append((name, sum(value for _, value in brought)))
    height = max(len(rows), 1) * _ROW
    return _chart(len(frames), marks, "".join(bars), height, height), rows


def _chart(width: int, marks: Marks, inside: str, height: float, pixels: int) -> str:
    lines = "".join(
        f'<line class="mark" x1="{step}" x2="{step}" y1="0" y2="{height:g}"/>'
        for step, _ in marks[1:]
    )
    cursor = f'<rect class="cursor" x="0" y="0" width="1" height="{height:g}"/>'
    return (
        f'<svg viewBox="0 0 {width} {height:g}" preserveAspectRatio="none" '
        f'class="chart" style="height:{pixels}px" aria-hidden="true">{lines}{inside}{cursor}</svg>'
    )
