"""Reports measurements as a table or a JSON file, and compares them with an earlier file."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any

from measure import Measurement, Ratio
from plots import device
from rich.console import Console
from rich.table import Table

_PACKAGES = ("ppo-mask", "jax", "jaxlib", "equinox", "optax", "numpy")
_FORMAT = 1
_LIMIT = "matrix products"


def surroundings() -> dict[str, Any]:
    """The machine, the versions and the commit of a measurement."""
    here = Path(__file__).parent
    git = {"cwd": here.parent, "capture_output": True, "text": True}
    commit = subprocess.run(["git", "describe", "--always"], **git).stdout.strip()
    # Results that a measurement wrote a moment ago are no other code.
    others = ["--", ".", ":!benchmarks/results", ":!benchmarks/curves", ":!docs"]
    is_changed = subprocess.run(["git", "diff", "--quiet", "HEAD", *others], **git).returncode
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": platform.machine(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        "python": platform.python_version(),
        "versions": {name: importlib.metadata.version(name) for name in _PACKAGES},
        "commit": commit + "-dirty" * bool(commit and is_changed) or None,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":")[1].strip() for x in lines if x.startswith("model name")), "")


def write(
    path: Path,
    measurements: Sequence[Measurement],
    ratios: Sequence[Ratio] = (),
    starts: Mapping[str, list[float]] = MappingProxyType({}),
) -> None:
    """Writes the measurements, ratios and starts, with their surroundings, as JSON."""
    found = {
        "format": _FORMAT,
        **surroundings(),
        "measurements": [asdict(each) for each in measurements],
        "ratios": [asdict(each) for each in ratios],
        "starts": dict(starts),
    }
    path.write_text(json.dumps(found, indent=1) + "\n")


def read(path: Path) -> list[Measurement]:
    """Reads the measurements of a file that :func:`write` wrote.

    Raises:
        ValueError: the file has another format or cannot be read.
    """
    try:
        found = json.loads(path.read_text())
        if found["format"] != _FORMAT:
            raise ValueError(f"its format is {found['format']}, not {_FORMAT}")
        return [Measurement(**each) for each in found["measurements"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no benchmark results: {error}") from None


def show(
    console: Console,
    measurements: Sequence[Measurement],
    ratios: Sequence[Ratio] = (),
    before: Sequence[Measurement] = (),
    starts: Mapping[str, list[float]] = MappingProxyType({}),
) -> None:
    """Prints a table of the measurements (compared with ``before``), then the ratios and starts."""
    known = {_what(each): each for each in before}
    limits = {_what(each)[1:]: each.rate for each in measurements if each.subject == _LIMIT}
    table = Table(title="steps per second")
    for name in (
        "subject",
        "envs",
        "median",
        "range",
        "trace s",
        "compile s",
        "peak MB",
        "device",
        "of limit",
    ):
        table.add_column(name, justify="left" if name in ("subject", "device") else "right")
    if before:
        table.add_column("to before", justify="right")
    for each in measurements:
        limit = limits.get(_what(each)[1:]) if each.subject == "training" else None
        row = [
            each.subject,
            f"{each.num_envs:,}",
            f"{each.rate:,.0f}",
            f"{each.rates[0]:,.0f} - {each.rates[-1]:,.0f}",
            f"{each.trace_seconds:.1f}",
            f"{each.compile_seconds:.1f}",
            f"{each.peak_mb:,.0f}",
            device(each),
            f"{each.rate / limit:.0%}" if limit else "",
        ]
        if before:
            old = known.get(_what(each))
            row.append(f"{each.rate / old.rate:.2f}" if old else "new")
        table.add_row(*row)
    if measurements:
        console.print(table)
    if limits:
        console.print(f"limit: the {_LIMIT} of an update alone; no training can be faster")
    for each in ratios:
        least, most = min(each.ratios), max(each.ratios)
        console.print(
            f"{each.subject} at {each.num_envs:,} on {device(each)}: {each.ratio:.2f} times "
            f"{each.other} in turn ({least:.2f} to {most:.2f})"
        )
    for which, seconds in starts.items():
        least, most = min(seconds), max(seconds)
        console.print(
            f"a {which} start: {median(seconds):.1f} s to its first update "
            f"({least:.1f} to {most:.1f})"
        )


def _what(each: Measurement) -> tuple[str, int, str]:
    """The key of a measurement; measurements with equal keys can be compared."""
    return each.subject, each.num_envs, device(each)
