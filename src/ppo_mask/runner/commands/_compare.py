"""``compare``: the results of runs side by side, and the settings in which the runs differ."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from statistics import mean, median
from typing import Any

from ppo_mask.runner.commands._curves import Log, read_log
from ppo_mask.runner.commands._options import add_command, add_folder, columns, run_folders
from ppo_mask.runner.commands._plot import by_label, settings_of

_LAST = 10  # log lines
_NONE = "-"


def add_compare(commands: Any) -> None:
    """Adds the command to a command line."""
    parser = add_command(
        commands,
        "compare",
        _run,
        "print results of runs side by side, and how their settings differ",
        needs_device=False,
    )
    parser.add_argument("runs", nargs="+", metavar="RUN", help="names, folders or URLs of runs")
    add_folder(parser)


def _run(options: argparse.Namespace) -> int:
    folders = by_label(run_folders(options.runs, options.checkpoint_dir))
    logs = {label: read_log(folder.metrics) for label, folder in folders.items()}
    settings = {
        label: {name: str(value) for name, value in settings_of(folder).items()}
        for label, folder in folders.items()
    }
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
            rows.append([f"{name}, last", *_of_each(logs, name, lambda x: mean(x[-_LAST:]))])
            if name.endswith("return"):
                rows.append([f"{name}, best", *_of_each(logs, name, max)])
    speeds = _of_each(logs, "train/steps_per_second", median, ",.0f")
    rows.append(["steps a second", *speeds])
    names = {name: None for each in settings.values() for name in each}
    different = [n for n in names if len({s.get(n, _NONE) for s in settings.values()}) > 1]
    if different:
        rows += [[], ["settings that differ"]]
        rows += [[n, *(each.get(n, _NONE) for each in settings.values())] for n in different]
    print(columns(rows))
    print(f"\nlast: the mean of the last {_LAST} log lines")
    return 0


def _steps(log: Log) -> str:
    return f"{max(steps[-1] for steps, _ in log.values()):,}" if log else _NONE


def _of_each(
    logs: Mapping[str, Log],
    name: str,
    reduce: Callable[[Sequence[float]], float],
    form: str = ".4g",
) -> list[str]:
    return [f"{reduce(log[name][1]):{form}}" if name in log else _NONE for log in logs.values()]
