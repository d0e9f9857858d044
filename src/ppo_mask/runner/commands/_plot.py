"""``plot``: draws learning curves of runs, with Matplotlib (``pip install ppo-mask[plot]``)."""

import argparse
import re
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from ppo_mask.callbacks._json_lines import read_log_lines
from ppo_mask.checkpoints import RunDir
from ppo_mask.checkpoints._runs import LATEST, expand_user
from ppo_mask.errors import RunError, warn
from ppo_mask.runner.commands._options import (
    add_command,
    add_folder,
    add_force,
    refuse_existing,
    run_folders,
    write,
)

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

Log: TypeAlias = dict[str, tuple[list[int], np.ndarray]]
"""The steps of each metric, and its values there [runs, steps]; several runs differ in the seed."""


def add_plot(commands: Any, titles: Mapping[str, str] | None = None) -> None:
    """Adds the command to a command line.

    Args:
        commands: the command line's subparsers.
        titles: the titles of additional metrics to draw by default.
    """
    titles = {**PLOTTED, **(titles or {})}
    parser = add_command(
        commands,
        "plot",
        lambda options: _run(options, titles),
        "draw learning curves from the logs of runs",
        needs_device=False,
    )
    help = "names, folders or URLs of runs (default: latest)"
    parser.add_argument("runs", nargs="*", default=[LATEST], metavar="RUN", help=help)
    add_folder(parser)
    parser.add_argument(
        "--out",
        type=expand_user,
        default="curves.png",
        metavar="FILE",
        help="what to write: .png or .svg (default: curves.png)",
    )
    parser.add_argument(
        "--metrics",
        nargs="+",
        metavar="NAME",
        help=f"metrics of the log (default: {' '.join(titles)})",
    )
    parser.add_argument(
        "--mean",
        action="store_true",
        help="for runs that differ only in their seed, draw the mean, and a band from the lowest "
        "to the highest",
    )
    add_force(parser)


def _run(options: argparse.Namespace, titles: Mapping[str, str]) -> int:
    format = Path(options.out).suffix.lower()[1:]
    if format not in ("png", "svg"):
        raise RunError(f"--out must end in .png or .svg, got {options.out}")
    folders = run_folders(options.runs, options.checkpoint_dir)
    refuse_existing([options.out], options.force)
    logs = read_logs(folders, options.mean)
    write(options.out, draw(logs, format, options.metrics, titles), options.force)
    return 0


def read_logs(folders: Sequence[RunDir], mean: bool) -> dict[str, Log]:
    """Reads the logs of runs, by a label for each; with ``mean``, seeds of a run share one."""
    groups: dict[bytes | int, list[RunDir]] = {}
    for number, folder in enumerate(folders):
        # As the runner writes it, each setting has a line.
        own = re.sub(rb"\n *seed: .*", b"", folder.config.read_bytes()) if mean else number
        groups.setdefault(own, []).append(folder)
    names = [seeds[0].path.name for seeds in groups.values()]
    logs: dict[str, Log] = {}
    for name, seeds in zip(names, groups.values(), strict=True):
        label = name if names.count(name) == 1 else str(seeds[0].path)
        if len(seeds) > 1:
            label = re.sub(r"-seed\d+$", "", label) + f" ({len(seeds)} seeds)"
        logs[label] = together([read_log(folder.metrics) for folder in seeds])
    return logs


def read_log(path: Path) -> Log:
    """Reads the metrics in a run's ``metrics.jsonl``, without damaged lines."""
    read: dict[str, tuple[list[int], list[float]]] = {}
    for line in filter(None, read_log_lines(path)):
        for name, value in line.items():
            if name not in ("step", "update") and isinstance(value, int | float):
                steps, values = read.setdefault(name, ([], []))
                steps.append(line["step"])
                values.append(float(value))
    return {name: (steps, np.array([values])) for name, (steps, values) in read.items()}


def together(logs: Sequence[Log]) -> Log:
    """Interpolates several runs at the steps of the first, up to the end of the shortest."""
    found: Log = {}
    for name in logs[0]:
        if all(name in log for log in logs):
            curves = [log[name] for log in logs]
            first, last = max(x[0] for x, _ in curves), min(x[-1] for x, _ in curves)
            steps = [step for step in curves[0][0] if first <= step <= last]
            found[name] = steps, np.stack([np.interp(steps, x, y[0]) for x, y in curves])
    return found


def draw(
    logs: Mapping[str, Log],
    format: str,
    names: Sequence[str] | None = None,
    titles: Mapping[str, str] = PLOTTED,
) -> bytes:
    """Draws a picture with a plot for each metric; several seeds as their mean and a band.

    Warns of metrics in ``names`` that a run lacks.

    Args:
        logs: the logs, by the names of the runs.
        format: "png" or "svg".
        names: the metrics to draw; by default the metrics in ``titles``.
        titles: the titles of the plots, by metric.
    """
    known = {name: None for log in logs.values() for name in log}
    found = [name for name in names or titles if name in known]
    if not found:
        have = ", ".join(sorted(known)) or "no metrics"
        raise RunError(f"there is nothing to plot; the logs have {have}")
    for name in names or ():
        if without := [run for run, log in logs.items() if name not in log]:
            warn(f"{', '.join(without)} did not log {name}")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise RunError(
            "plots need Matplotlib; install it with pip install 'ppo-mask[plot]'"
        ) from error
    columns = min(_COLUMNS, len(found))
    rows = -(-len(found) // columns)
    figure = Figure(figsize=(4.2 * columns, 2.7 * rows + 0.4), layout="constrained")
    curves: dict[str, Any] = {}
    for place, name in enumerate(found, 1):
        axes = figure.add_subplot(rows, columns, place)
        for i, (run, log) in enumerate(logs.items()):
            if name in log:
                steps, values = log[name]
                look: dict[str, Any] = {"color": f"C{i}", "marker": "." * (len(steps) < 3)}
                (curves[run],) = axes.plot(steps, values.mean(0), linewidth=1.4, **look)
                if len(values) > 1:
                    band = values.min(0), values.max(0)
                    axes.fill_between(steps, *band, color=look["color"], alpha=0.2, lw=0)
        axes.set_xlabel("environment steps", fontsize=8)
        axes.set_title(titles.get(name, name), fontsize=10)
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
