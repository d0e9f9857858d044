"""Draws strength over seconds of training: ``python docs/_site/progress.py`` (extra ``plot``).

The champion's curve is the package's. Those of ``--preset fast`` are the table in docs/learning.md.
"""

import csv
import re
from pathlib import Path

from matplotlib.figure import Figure

ROOT = Path(__file__).parents[2]
SCRIPTED = {"random play": 1.2, "scripted fighter": 3.9}
"""Mean final stages, from docs/watching.md."""


def fast() -> tuple[list[float], list[list[float]]]:
    """The stages, and after how many seconds each seed was there."""
    text = (ROOT / "docs" / "learning.md").read_text()
    rows = re.findall(r"^\| (\d\.\d) \| ([\d, ]+) \|", text, re.MULTILINE)
    return [float(stage) for stage, _ in rows], [[*map(float, x.split(","))] for _, x in rows]


def champion() -> tuple[list[float], list[float]]:
    """Seconds of training, and the mean final stage."""
    with (ROOT / "src" / "hackmatrix" / "champion" / "curve.csv").open() as file:
        rows = list(csv.DictReader(file))
    return [float(row["seconds"]) for row in rows], [float(row["stage"]) for row in rows]


def main() -> None:
    """Draws docs/images/progress.png."""
    figure = Figure(figsize=(8.4, 3.6), layout="constrained")
    axes = figure.subplots()
    stages, seconds = fast()
    low, high = ([pick(each) for each in seconds] for pick in (min, max))
    axes.fill_betweenx(stages, low, high, color="C0", alpha=0.25, linewidth=0)
    middle = [sorted(each)[len(each) // 2] for each in seconds]
    axes.plot(middle, stages, "o-", color="C0", label="--preset fast, two CPU cores, three seeds")
    axes.plot(*champion(), color="C1", label="--preset champion, two CPU cores, one seed")
    for name, stage in SCRIPTED.items():
        axes.axhline(stage, color="0.5", linewidth=0.8, linestyle=":")
        axes.text(7000, stage + 0.08, name, color="0.4", fontsize=8, ha="right")
    axes.set_xscale("log")
    axes.set_xticks([3, 10, 60, 600, 3600], ["3 s", "10 s", "1 min", "10 min", "1 h"])
    axes.minorticks_off()
    axes.set(xlim=(2.5, 7500), ylim=(1, 8), ylabel="mean final stage, of 8")
    axes.set_xlabel("time of training, from nothing")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="upper left", fontsize=9)
    figure.savefig(ROOT / "docs" / "images" / "progress.png", dpi=120)


if __name__ == "__main__":
    main()
