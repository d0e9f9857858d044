"""``plot``: draws the learning curves of runs."""

import argparse
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ppo_mask.checkpoints import RunDir, expand_user
from ppo_mask.checkpoints._runs import LATEST
from ppo_mask.errors import RunError
from ppo_mask.runner._schema import load_yaml
from ppo_mask.runner.commands._curves import PLOTTED, Band, Log, draw, mean_of, read_log
from ppo_mask.runner.commands._options import (
    add_command,
    add_folder,
    add_force,
    refuse_existing,
    run_folders,
    write,
)


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
    folders = by_label(run_folders(options.runs, options.checkpoint_dir))
    refuse_existing([options.out], options.force)
    logs = {label: read_log(folder.metrics) for label, folder in folders.items()}
    bands: dict[str, Band] = {}
    if options.mean:
        logs, bands = means_of_seeds(folders, logs)
    write(options.out, draw(logs, format, options.metrics, titles, bands), options.force)
    return 0


def by_label(folders: Sequence[RunDir]) -> dict[str, RunDir]:
    """Labels runs by name, or by path if two runs have the same name."""
    names = [folder.path.name for folder in folders]
    return {str(f.path) if names.count(f.path.name) > 1 else f.path.name: f for f in folders}


def settings_of(folder: RunDir) -> dict[str, Any]:
    """Reads the settings in a run's ``config.yaml``, by name; no settings if the file is empty."""
    content = load_yaml(folder.config)
    found: dict[str, Any] = {}
    for name, value in content.items() if isinstance(content, dict) else ():
        group = value if isinstance(value, dict) else {name: value}
        found |= {str(key): each for key, each in group.items()}
    return found


def means_of_seeds(
    folders: Mapping[str, RunDir], logs: Mapping[str, Log]
) -> tuple[dict[str, Log], dict[str, Band]]:
    """Computes mean and band (from lowest to highest) of runs that differ only in the seed."""
    groups: dict[frozenset[str], list[str]] = {}
    for label, folder in folders.items():
        settings = settings_of(folder)
        settings.pop("seed", None)
        groups.setdefault(frozenset(map(str, settings.items())), []).append(label)
    means: dict[str, Log] = {}
    bands: dict[str, Band] = {}
    for labels in groups.values():
        seeds = f" ({len(labels)} seeds)" if len(labels) > 1 else ""
        label = re.sub(r"-seed\d+$", "", labels[0]) + seeds
        means[label], bands[label] = mean_of([logs[label] for label in labels])
    return means, bands
