"""Draws learning curves from the logs of runs, with Matplotlib (``pip install ppo-mask[plot]``)."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np

from ppo_mask.callbacks._json_lines import read_log_lines
from ppo_mask.errors import RunError, warn
from ppo_mask.runner._schema import did_you_mean

PLOTTED = {
    "train/mean_episode_return": "return",
    "eval/mean_episode_return": "return, evaluated",
    "train/mean_episode_length": "length of an episode",
    "train/entropy": "entropy",
    "train/approx_kl": "approximate KL",
    "train/explained_variance": "explained variance",
    "train/steps_per_second": "steps per second",
}
"""The titles of the metrics to draw by default, by the metrics' names in the log."""

_COLUMNS = 3

Log = dict[str, tuple[list[int], list[float]]]
"""Steps and values of each metric."""

Band = dict[str, tuple[list[float], list[float]]]
"""The lowest and the highest value of each metric, at the steps of the metric's mean."""


def read_log(path: Path) -> Log:
    """Reads the metrics in a run's ``metrics.jsonl``, without damaged lines."""
    log: Log = {}
    for line in filter(None, read_log_lines(path)):
        for name, value in line.items():
            if name not in ("step", "update") and isinstance(value, int | float):
                steps, values = log.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(float(value))
    return log


def mean_of(logs: Sequence[Log]) -> tuple[Log, Band]:
    """Computes the mean of several runs, and the band from the lowest to the highest value.

    Values are interpolated at the steps of the first run, up to the end of the shortest run.
    """
    means: Log = {}
    band: Band = {}
    for name in logs[0]:
        if all(name in log for log in logs):
            first = max(log[name][0][0] for log in logs)
            last = min(log[name][0][-1] for log in logs)
            steps = [step for step in logs[0][name][0] if first <= step <= last]
            values = np.stack([np.interp(steps, *log[name]) for log in logs])
            means[name] = steps, values.mean(axis=0).tolist()
            band[name] = values.min(axis=0).tolist(), values.max(axis=0).tolist()
    return means, band


def draw(
    logs: Mapping[str, Log],
    format: str,
    names: Sequence[str] | None = None,
    titles: Mapping[str, str] = PLOTTED,
    bands: Mapping[str, Band] | None = None,
) -> bytes:
    """Draws the curves of several runs as a PNG or SVG picture, with a plot for each metric.

    Warns of metrics in ``names`` that a run lacks.

    Args:
        logs: the logs, by the names of the runs.
        format: "png" or "svg".
        names: the metrics to draw; by default the metrics in ``titles``.
        titles: the titles of the plots, by metric.
        bands: the bands around the curves, by the names of the runs.
    """
    wanted = list(titles) if names is None else list(names)
    known = sorted({name for log in logs.values() for name in log})
    found = [name for name in wanted if name in known]
    if not found:
        raise RunError(
            f"there is nothing to plot; the logs have {', '.join(known) or 'no metrics'}"
        )
    for name in names or ():
        if without := [run for run, log in logs.items() if name not in log]:
            hint = "" if name in known else did_you_mean(name, known)
            warn(f"{', '.join(without)} did not log {name}{hint}")
    try:
        from matplotlib.figure import Figure
        from matplotlib.lines import Line2D
    except ImportError as error:
        raise RunError(
            "plots need Matplotlib; install it with pip install 'ppo-mask[plot]'"
        ) from error
    columns = min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows + 0.4), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False).flatten()
    for axes in grid[len(found) :]:
        axes.set_visible(False)
    curves: dict[str, Line2D] = {}
    for name, axes in zip(found, grid, strict=False):
        for i, (run, log) in enumerate(logs.items()):
            if name in log:
                steps, values = log[name]
                mark, color = "." * (len(steps) < 3), f"C{i}"
                (curves[run],) = axes.plot(steps, values, color=color, linewidth=1.4, marker=mark)
                if bands and name in bands.get(run, {}):
                    axes.fill_between(steps, *bands[run][name], color=color, alpha=0.2, lw=0)
        axes.set_xlabel("environment steps", fontsize=8)
        axes.set_title(titles.get(name) or name, fontsize=10)
        axes.ticklabel_format(axis="x", style="sci", scilimits=(-3, 4))
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    place = "outside lower center"
    # Labels of the curves themselves would be hidden where they begin with an underscore.
    figure.legend([*curves.values()], [*curves], loc=place, ncols=4, frameon=False)
    out = BytesIO()
    metadata = {"Date": None} if format == "svg" else None
    figure.savefig(out, format=format, dpi=110, metadata=metadata)
    return out.getvalue()
