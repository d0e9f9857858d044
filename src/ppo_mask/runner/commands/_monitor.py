"""``monitor``: follows a run from another terminal."""

import argparse
import math
import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from rich.console import Console

from ppo_mask.callbacks._console import Table, number as short
from ppo_mask.callbacks._json_lines import read_log_lines
from ppo_mask.checkpoints import RunDir
from ppo_mask.runner.commands._curves import PLOTTED, sparkline
from ppo_mask.runner.commands._options import (
    add_command,
    add_run,
    columns as aligned,
    number,
    run_folders,
)
from ppo_mask.runner.commands._plot import settings_of
from ppo_mask.training import LogRecord

_SHOWN = 10  # log lines


def add_monitor(commands: Any, columns: Mapping[str, str]) -> None:
    """Adds the command to a command line.

    Args:
        commands: the command line's subparsers.
        columns: metrics for extra columns of the table, by heading.
    """
    parser = add_command(
        commands,
        "monitor",
        lambda options: _run(options, columns),
        "follow a run from another terminal: the newest log lines, and curves",
        needs_device=False,
    )
    add_run(parser)
    help = "seconds between two looks at the run (default: 5)"
    parser.add_argument("--interval", type=number(1), default=5, metavar="N", help=help)
    parser.add_argument("--once", action="store_true", help="look once, and do not wait")


def _run(options: argparse.Namespace, columns: Mapping[str, str]) -> int:
    console = Console()
    while True:
        (folder,) = run_folders([options.run], options.checkpoint_dir)
        text, is_over = report(folder, columns)
        if not options.once:
            console.clear()
        print(text, flush=True)
        if options.once or is_over:
            return 0
        time.sleep(options.interval)


def report(folder: RunDir, columns: Mapping[str, str]) -> tuple[str, bool]:
    """Describes a run by its log; also returns whether the run has reached its end."""
    found = read_log_lines(folder.metrics) if folder.metrics.exists() else []
    lines = [{k: x for k, x in line.items() if x is not None} for line in found if line]
    if not lines:
        return f"{folder.path} has no log line yet", False
    table, text = Table(columns), [str(folder.path)]
    total = settings_of(folder).get("total_timesteps", 0)
    is_over = lines[-1]["step"] >= total
    for line in lines[-_SHOWN:]:
        left = max(total - line["step"], 0) / line.get("train/steps_per_second", math.inf)
        record = LogRecord(line.pop("update"), line.pop("step"), line)
        text += table.lines(record, str(timedelta(seconds=round(left))))
    curves: list[list[str]] = []
    for name, title in (PLOTTED | {name: heading for heading, name in columns.items()}).items():
        if values := [line[name] for line in lines if name in line]:
            curves.append([title, short(values[0]), sparkline(values), short(values[-1])])
    return "\n".join([*text, "", aligned(curves)]), is_over
