"""``compare``: what runs have come to, side by side, and which of their settings differ."""

import argparse
from statistics import mean, median
from typing import Any

from ppo_mask.checkpoints import RunFolder
from ppo_mask.runner._schema import load_yaml
from ppo_mask.runner.commands._curves import Log, read_log
from ppo_mask.runner.commands._options import add_command, add_folder, columns, run_folders
from ppo_mask.runner.commands._plot import by_label

_LAST = 10  # log lines
_NONE = "-"


def add_compare(commands: Any) -> None:
    """Adds the command to a command line."""
    parser = add_command(
        commands, "compare", _run, "print what runs have come to, side by side", needs_device=False
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names, folders or URLs of runs")
    add_folder(parser)


def _run(options: argparse.Namespace) -> int:
    folders = by_label(run_folders(options.runs, options.checkpoint_dir))
    logs = {label: read_log(folder.metrics) for label, folder in folders.items()}
    settings = {label: _settings(folder) for label, folder in folders.items()}
    rows = [["", *folders]]
    rows.append(["steps", *(_steps(log) for log in logs.values())])
    metrics = (
        "train/mean_episode_return",
        "eval/mean_episode_return",
        "train/mean_episode_length",
        "train/entropy",
    )
    for name in metrics:
        if any(name in log for log in logs.values()):
            rows.append([f"{name}, last", *(_last(log, name) for log in logs.values())])
            if name.endswith("return"):
                rows.append([f"{name}, best", *(_best(log, name) for log in logs.values())])
    speeds = [_median(log, "train/steps_per_second") for log in logs.values()]
    rows.append(["steps a second", *speeds])
    names = {name: None for each in settings.values() for name in each}
    different = [n for n in names if len({s.get(n, _NONE) for s in settings.values()}) > 1]
    if different:
        rows += [[], ["settings that differ"]]
        rows += [[n, *(each.get(n, _NONE) for each in settings.values())] for n in different]
    print(columns(rows))
    print(f"\nlast: the mean of the last {_LAST} log lines")
    return 0


def _settings(folder: RunFolder) -> dict[str, str]:
    groups: dict[str, dict[str, Any]] = load_yaml(folder.config) or {}
    return {name: str(value) for group in groups.values() for name, value in group.items()}


def _steps(log: Log) -> str:
    return f"{max(steps[-1] for steps, _ in log.values()):,}" if log else _NONE


def _last(log: Log, name: str) -> str:
    return f"{mean(log[name][1][-_LAST:]):.4g}" if name in log else _NONE


def _best(log: Log, name: str) -> str:
    return f"{max(log[name][1]):.4g}" if name in log else _NONE


def _median(log: Log, name: str) -> str:
    return f"{median(log[name][1]):,.0f}" if name in log else _NONE
