"""Trains on tasks of other libraries, for docs/results.md and the gallery in docs/examples.md.

    pip install 'ppo-mask[adapters,gif,gymnasium,pettingzoo,plot,sb3]' popgym jssenv
    python benchmarks/results.py run all    # or names of rows: trains, evaluates, keeps the results
    python benchmarks/results.py defaults all    # trains the same tasks by their names alone
    python benchmarks/results.py page       # writes the tables of the pages, and the curves

``results/tasks.yaml`` has the rows. ``run`` trains each seed with a row's command, plays fresh
episodes with each trained policy, and writes ``results/NAME.json`` and a picture of one episode for
the gallery. What a seed reached is kept in ``checkpoints/results``: after a stop, ``run`` goes on
with the next seed. ``defaults`` is for tasks of ``train_elsewhere.py``, and gives it no other flag
than the task's name. ``page`` needs what is in ``results`` and in ``curves`` alone: also what
``changes.py`` and ``jumanji_a2c.py`` keep there.
"""

import argparse
import base64
import functools
import importlib.metadata
import json
import re
import resource
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
import yaml
from changes import table as table_of_changes
from PIL import Image, ImageChops, ImageOps
from report import surroundings
from scipy import stats

from ppo_mask.runner.commands._plot import read_log

ROOT = Path(__file__).parents[1]
KEPT, RUNS = ROOT / "benchmarks" / "results", ROOT / "checkpoints" / "results"
IMAGES = ROOT / "docs" / "images"
DEFAULTS = KEPT / "defaults.yaml"
A2C = ROOT / "benchmarks" / "curves" / "jumanji_a2c.jsonl"
PAGES = [ROOT / "docs" / f"{name}.md" for name in ("results", "examples", "tuning")]
KNOWN = ("cartpole", "breakout", "space_invaders", "taxi", "frozen_lake")  # In the README.
POINTS = 50
_SAME = "command", "date", "cpu", "commit", "versions", "steps"  # Said once for all seeds.
_LENGTH, _WIDTH = 60, 150  # Steps of the episode in the gallery; pixels of the picture.

Result = dict[str, Any]
Results = Sequence[tuple["Row", Result]]


class Row(NamedTuple):
    """A task.

    Attributes:
        name: the row's name.
        task: the task, for the page.
        flags: the program in ``examples/`` and its flags.
        library: the package that has the task.
        source: who reports the reference, and how it was measured, in Markdown.
        note: what the return is, in Markdown.
        reference: the return that others report, if there is one.
        spread: the standard deviation of the reference, if others report one.
        curve: the metric of the learning curve.
        picture: the file in ``docs/images`` that shows the task, if ``run`` draws none.
        seeds: how many seeds are trained, from 0 on.
        episodes: how many fresh episodes are played with each.
    """

    name: str
    task: str
    flags: str
    library: str
    source: str
    note: str = ""
    reference: float | None = None
    spread: float = 0.0
    curve: str = "train/mean_episode_return"
    picture: str | None = None
    seeds: int = 5
    episodes: int = 256


ROWS = [Row(**row) for row in yaml.safe_load((KEPT / "tasks.yaml").read_text(encoding="utf-8"))]


def command(row: Row) -> str:
    """Returns the command that trains a seed, without the flags ``--seed`` and ``--run-name``."""
    return f"python examples/{row.flags}"


def by_name_alone(row: Row) -> Row | None:
    """Returns the row without its settings; None if its program is not for any task."""
    program, *flags = shlex.split(row.flags)
    if program != "train_elsewhere.py" or "--opponent" in flags:
        return None
    library, name = (flags[flags.index(x) + 1] for x in ("--library", "--name"))
    short = f"{program} --library {library} --name {name}"
    # By its task's name, two rows of one task are trained once.
    return row._replace(name=name, flags=short, picture="none", seeds=3)


def run(row: Row, folder: Path = RUNS) -> Result:
    """Trains the row's seeds one after another, evaluates them, and returns what the page needs."""
    seeds = [_train(row, seed, folder / row.name) for seed in range(row.seeds)]
    if row.picture is None:
        take_picture(row, folder / row.name / "0")
    return {
        **{name: seeds[-1][name] for name in _SAME},
        "core_seconds": round(mean(seed["core_seconds"] for seed in seeds)),
        "returns": [seed["return"] for seed in seeds],
        "curve": mean_curve([seed["curve"] for seed in seeds]),
    }


def _train(row: Row, seed: int, folder: Path) -> Result:
    """Trains and evaluates one seed, or returns what an earlier call kept of it."""
    path, kept = folder / str(seed), folder / f"{seed}.json"
    packages = dict.fromkeys(("jax", "equinox", row.library))
    found = {"command": command(row), **surroundings()}
    found["versions"] = {name: importlib.metadata.version(name) for name in packages}
    if kept.exists():
        before = json.loads(kept.read_text())
        if all(before[name] == found[name] for name in ("command", "commit", "versions")):
            return before
    shutil.rmtree(path, ignore_errors=True)
    own = ["--seed", str(seed), "--run-name", str(seed), "--checkpoint-dir", str(folder)]
    began = _core_seconds()
    _call([*shlex.split(command(row)), *own, "--no-tensorboard"])
    found["core_seconds"] = _core_seconds() - began
    log = read_log(path / "metrics.jsonl")
    steps, (values,) = log[row.curve]
    found["steps"] = max(each[-1] for each, _ in log.values())
    found["curve"] = steps, values.tolist()
    found["return"] = round(evaluate(row, path, 1000 + seed), 4)
    kept.write_text(json.dumps(found), encoding="utf-8")
    return found


def _core_seconds() -> float:
    """The processor time of all programs that have been called."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def evaluate(row: Row, path: Path, seed: int) -> float:
    """Returns the mean return of fresh episodes, with actions sampled from the policy."""
    flags = ["--json", "--seed", str(seed), "--episodes", str(row.episodes)]
    (found,) = json.loads(_call([*_play(row, "evaluate", path), *flags]))
    return found["eval/mean_episode_return"]


def take_picture(row: Row, path: Path) -> None:
    """Keeps the middle of an episode that the policy plays, if the environment can draw."""
    page = path / "episode.html"
    _call([*_play(row, "watch", path), "--max-steps", str(_LENGTH), "--html", str(page), "--force"])
    found = re.findall(r"data:image/(png|svg\+xml);base64,([\w+/=]+)", page.read_text())
    if not found:
        return
    kind, code = found[len(found) // 2]
    content, file = base64.b64decode(code), IMAGES / "gallery" / row.name
    if kind == "png":
        image = Image.open(BytesIO(content)).convert("RGB")
        paper = Image.new("RGB", image.size, "white")
        image = image.crop(ImageChops.difference(image, paper).getbbox())
        image = ImageOps.contain(image, (_WIDTH, _WIDTH)).quantize(64)
        image.save(file.with_suffix(".png"), optimize=True)
    else:
        file.with_suffix(".svg").write_bytes(content)


def _play(row: Row, command: str, path: Path) -> list[str]:
    """The words of a command that plays with a run's policy, sampling actions."""
    return ["python", f"examples/{row.flags.split()[0]}", command, str(path), "--sample"]


def mean_curve(series: Sequence[tuple[list[int], list[float]]]) -> dict[str, list[float]]:
    """Returns the mean, lowest and highest value of the seeds' curves, at 50 steps or fewer."""
    first, last = max(steps[0] for steps, _ in series), min(steps[-1] for steps, _ in series)
    at = np.linspace(first, last, min(POINTS, *(len(steps) for steps, _ in series))).round()
    values = np.stack([np.interp(at, *each) for each in series])
    found = {"mean": values.mean(0), "low": values.min(0), "high": values.max(0)}
    short = {name: [float(f"{x:.4g}") for x in line] for name, line in found.items()}
    return {"steps": at.astype(int).tolist(), **short}


def _call(words: Sequence[str]) -> str:
    """Runs ``python …`` in the project's folder, and returns what it prints."""
    command = [sys.executable, *words[1:]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{shlex.join(words)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def kept() -> Results:
    """Returns the rows that have a result, with their results."""
    files = [(row, KEPT / f"{row.name}.json") for row in ROWS]
    return [(row, json.loads(file.read_text())) for row, file in files if file.exists()]


def by_default() -> dict[str, list[float]]:
    """Returns the returns of the tasks by their names alone, for each row that has them."""
    return yaml.safe_load(DEFAULTS.read_text(encoding="utf-8"))


def verdict(row: Row, found: Result) -> str:
    """Compares the mean's 95% interval, widened by the reference's spread, with the reference."""
    if row.reference is None:
        return ""
    middle, half = interval(found["returns"])
    over = round(middle - row.reference, 2)  # Others report two digits at most.
    allowed = half + row.spread
    return (
        "within the spread" if abs(over) <= allowed else "better" if over > 0 else "**falls short**"
    )


def interval(returns: Sequence[float]) -> tuple[float, float]:
    """Returns the mean, and half of its 95% interval by Student's t."""
    half = float(stats.t.ppf(0.975, len(returns) - 1)) * stdev(returns) / len(returns) ** 0.5
    return mean(returns), half


def reached(found: Result) -> list[str]:
    """Returns the mean of the returns, its 95% interval, and the interquartile mean, as text."""
    middle, half = interval(found["returns"])
    values = middle - half, middle, middle + half, float(stats.trim_mean(found["returns"], 0.25))
    low, middle, high, trimmed = numbers(values, middle)
    return [middle, f"{low} to {high}", trimmed]


def numbers(values: Sequence[float], middle: float) -> list[str]:
    """Returns the values as text, with as many digits as fit their mean."""
    digits = 2 if abs(middle) < 10 else 1 if abs(middle) < 1000 else 0
    return [f"{round(x, digits) + 0:,.{digits}f}" for x in values]


def fill(text: str, results: Results) -> str:
    """Returns a page's text with new tables and lists between its markers."""
    table = [
        "| task | library | return | 95% | IQM | defaults | reference | "
        "| seeds | steps | core minutes |",
        f"|{'---|' * 11}",
    ]
    gallery = ["| | |", "|---|---|"]
    sources, machines = dict[str, list[str]](), dict[str, list[str]]()
    without = by_default()
    for row, found in results:
        versions = {name: f"{name} {version}" for name, version in found["versions"].items()}
        library = versions[row.library]
        reported = "no number" if row.reference is None else f"{row.reference:g}"
        reported += f" ± {row.spread:g}" if row.spread else ""
        reported = "[A2C](#jumanji-beside-its-own-agent)" if _a2c_of(row) else reported
        minutes = f"{found['core_seconds'] / 60:.1f}" if "core_seconds" in found else ""
        default = reached({"returns": without[row.name]})[0] if row.name in without else ""
        table.append(
            f"| {row.task} | {library} | {' | '.join(reached(found))} | {default} | {reported} "
            f"| {verdict(row, found)} | {len(found['returns'])} | {found['steps']:,} | {minutes} |"
        )
        gallery.append(
            f"| {_image(row)} | **{row.task}** ({library}){'. ' if row.note else ''}{row.note}"
            f"<br>`{found['command']}` |"
        )
        sources.setdefault(row.source, []).append(f"**{row.task}**")
        place = f"{found['cpu']}, {found['date'][:10]}"
        code = f"commit `{found['commit']}`, {versions['jax']}, {versions['equinox']}"
        machines.setdefault(f"{place}, {code}", []).append(row.task)
    parts = {
        "results": table,
        "sources": [f"- {', '.join(tasks)}: {source}" for source, tasks in sources.items()],
        "machines": [f"- {place}: {'; '.join(tasks)}" for place, tasks in machines.items()],
        "gallery": gallery,
        "changes": table_of_changes(),
        "a2c": beside_a2c(results),
    }
    for name, lines in parts.items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        if start in text:
            before, after = text.split(start)[0], text.split(end)[1]
            text = "\n".join([before + start, *lines, "", end + after])
    return text


def beside_a2c(results: Results) -> list[str]:
    """Returns the lines of the table of jumanji's own agent and the rows of the same tasks."""
    lines = [
        "| task | A2C | its steps | its core minutes | row | return | steps | core minutes |",
        f"|{'---|' * 8}",
    ]
    for row, found in results:
        if seeds := _a2c_of(row):
            returns = [seed["return"] for seed in seeds]
            middle, *each = numbers([mean(returns), *returns], mean(returns))
            steps, seconds = (mean(seed[x] for seed in seeds) for x in ("steps", "core_seconds"))
            task = seeds[0]["task"]
            lines.append(
                f"| {task} | {middle} ({', '.join(each)}) | {steps:,.0f} | {seconds / 60:.1f} "
                f"| {row.task} | {reached(found)[0]} | {found['steps']:,} "
                f"| {found['core_seconds'] / 60:.1f} |"
            )
    return lines


def _a2c_of(row: Row) -> list[dict[str, Any]]:
    """The seeds of jumanji's own agent on the row's task, if it was trained."""
    name, *_ = row.task.split(",")
    return [seed for seed in _a2c() if seed["task"] == name]


@functools.cache
def _a2c() -> list[dict[str, Any]]:
    """All seeds of jumanji's own agent: read once for all rows of all pages."""
    return [json.loads(line) for line in A2C.read_text(encoding="utf-8").splitlines()]


def _image(row: Row) -> str:
    """The picture of a row in the gallery; empty if there is none."""
    found = [IMAGES / row.picture] if row.picture else (IMAGES / "gallery").glob(f"{row.name}.*")
    return "".join(
        f'<img alt="{row.task}" src="images/{path.relative_to(IMAGES).as_posix()}" '
        f'width="{Image.open(path).width if path.suffix == ".png" else _WIDTH}">'
        for path in found
    )


def draw(results: Results, path: Path) -> None:
    """Plots each row's learning curve, and a line at the reference."""
    from matplotlib.figure import Figure

    columns = 5
    count = -(-len(results) // columns)
    figure = Figure(figsize=(12, 1.9 * count + 0.3), layout="constrained")
    grid = figure.subplots(count, columns, squeeze=False).flatten()
    for axes in grid[len(results) :]:
        axes.set_visible(False)
    for (row, found), axes in zip(results, grid, strict=False):
        curve = found["curve"]
        axes.plot(curve["steps"], curve["mean"], color="teal", linewidth=1.4)
        axes.fill_between(curve["steps"], curve["low"], curve["high"], color="teal", alpha=0.2)
        if row.reference is not None:
            axes.axhline(row.reference, color="0.3", linestyle="--", linewidth=1)
        axes.set_title(f"{row.task} ({row.library})", fontsize=7.5)
        axes.tick_params(labelsize=7)
        axes.xaxis.set_major_formatter(
            lambda x, _: f"{x / 1e6:g}M" if x >= 1e6 else f"{x / 1e3:g}k" if x else "0"
        )
        axes.locator_params(axis="x", nbins=4)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.supxlabel("environment steps", fontsize=9)
    figure.supylabel("return", fontsize=9)
    figure.savefig(path, dpi=110)


def main(arguments: Sequence[str] | None = None) -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="Results on tasks of other libraries.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("page", help="write the tables of the pages, and the learning curves")
    for name, help_ in (
        ("run", "train, evaluate, and keep the results"),
        ("defaults", "the same by the tasks' names alone"),
    ):
        training = commands.add_parser(name, help=help_)
        names = ["all", *(row.name for row in ROWS)]
        training.add_argument("names", nargs="+", metavar="NAME", choices=names)
    options = parser.parse_args(arguments)
    if options.command == "page":
        for page in PAGES:
            page.write_text(fill(page.read_text(encoding="utf-8"), kept()), encoding="utf-8")
        draw(kept(), IMAGES / "results.png")
        draw([each for each in kept() if each[0].name in KNOWN], IMAGES / "known.png")
        return
    for row in [row for row in ROWS if {row.name, "all"} & {*options.names}]:
        if options.command == "run":
            found = run(row)
            (KEPT / f"{row.name}.json").write_text(json.dumps(found) + "\n", encoding="utf-8")
            print(row.name, found["returns"], found["core_seconds"], "core seconds", flush=True)
        elif (short := by_name_alone(row)) is not None:
            returns = run(short, RUNS / "defaults")["returns"]
            DEFAULTS.write_text(yaml.safe_dump({**by_default(), row.name: returns}))
            print(row.name, returns, "by default", flush=True)


if __name__ == "__main__":
    main()
