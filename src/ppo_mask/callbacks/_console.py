"""Shows a run on the console: a table that grows line by line, and a progress bar."""

import time
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress as Bar, TextColumn

from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.training import Callback, LogRecord, Progress, Run, TrainState

_HEADER_EVERY = 20
_COLUMNS = {
    "return": "train/mean_episode_return",
    "length": "train/mean_episode_length",
    "entropy": "train/entropy",
    "kl": "train/approx_kl",
}


def print_banner(facts: Mapping[str, str]) -> None:
    """Prints facts about a run, and a line which says that compilation begins.

    Args:
        facts: the facts as text, by name.
    """
    for name, text in facts.items():
        print(f"{name:8}{text}")
    print("compiling ...", flush=True)


@final
class ConsoleLog(Callback):
    """Prints a table with a row per log line and, on a terminal, a progress bar.

    The headings are printed again after every 20 rows.

    Args:
        columns: metrics for extra columns, by heading, such as ``{"won": "stats/win_rate"}``.
        console: where to print; standard output if None.
        path: a text file that gets the same lines; None for none.
    """

    def __init__(
        self,
        columns: Mapping[str, str] | None = None,
        console: Console | None = None,
        path: Path | None = None,
    ) -> None:
        self._columns, self._rows = columns or {}, 0
        self._file = None if path is None else LogFile(path)
        self._console = console or Console(highlight=False)
        self._bar: Bar | None = None
        self._began = 0.0
        self._latest: dict[str, float] = {}

    def on_start(self, run: Run, state: TrainState) -> None:
        self._began = time.monotonic()
        # FORCE_COLOR makes every file a terminal for rich.
        if self._console.is_terminal and self._console.file.isatty():
            self._bar = Bar(
                BarColumn(bar_width=30),
                TextColumn("{task.percentage:5.1f}%  {task.description}", markup=False),
                console=self._console,
            )
            self._bar.add_task("", total=run.total_updates, completed=run.update)
            self._bar.start()

    def on_log(self, run: Run, record: LogRecord) -> None:
        values = record.values
        self._latest |= values
        if not any(name.startswith("train/") for name in values):
            metrics = "  ".join(f"{name} {_number(x)}" for name, x in values.items())
            self._print(f"update {record.update}: {metrics}")
            return
        speed = values.get("train/steps_per_second")
        row = [
            ("update", f"{record.update:,}"),
            ("steps", f"{record.env_steps:,}"),
            ("steps/s", "-" if speed is None else f"{speed:,.0f}"),
            ("left", self._time_left(run)),
        ]
        # A list, not a dict, since a custom column may repeat one of these headings.
        columns = {**_COLUMNS, **self._columns}
        row += [(head, _number(values.get(name))) for head, name in columns.items()]
        heads, cells = zip(*row, strict=True)
        widths = [11 if head == "steps" else max(8, len(head)) for head in heads]
        for words in [cells] if self._rows % _HEADER_EVERY else [heads, cells]:
            # The space keeps apart what is wider than its column.
            self._print("".join(f" {x:>{n}}" for x, n in zip(words, widths, strict=True)))
        self._rows += 1

    def on_chunk(self, run: Run, state: TrainState, progress: Progress) -> None:
        if self._bar is None:
            return
        total = run.total_updates * run.algorithm.batch_size
        parts = [
            f"{progress.env_steps:,}/{total:,} steps",
            f"{progress.steps_per_second:,.0f} steps/s",
            f"{self._time_left(run)} left",
        ]
        for heading, name in {"return": _COLUMNS["return"], **self._columns}.items():
            if (value := self._latest.get(name)) is not None:
                parts.append(f"{heading} {_number(value)}")
        self._bar.update(self._bar.task_ids[0], completed=run.update, description="  ".join(parts))

    def on_stop(self, run: Run, state: TrainState, reason: str) -> None:
        self.close()
        took = timedelta(seconds=round(time.monotonic() - self._began))
        steps = run.update * run.algorithm.batch_size
        self._print(f"{reason} after {run.update:,} updates, {steps:,} steps, in {took}")

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None
        if self._file is not None:
            self._file.close()

    def _time_left(self, run: Run) -> str:
        done = run.update - run.start_update
        if done == 0:
            return "-"
        pace = (time.monotonic() - self._began) / done
        return str(timedelta(seconds=round(pace * (run.total_updates - run.update))))

    def _print(self, line: str) -> None:
        self._console.print(line, markup=False, emoji=False, soft_wrap=True)
        if self._file is not None:
            self._file.append(f"{line}\n".encode())


def _number(value: float | None) -> str:
    """Formats a metric in a few characters; None as a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
