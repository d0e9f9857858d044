"""Log lines as JSON, one object each, and how they are read again.

A resumed run appends to its log: what that holds of later updates, written before the run was
killed or wound back, is dropped when training starts, and so is a partial last line. So no point is
there twice.
"""

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, final

from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.checkpoints import write_whole
from ppo_mask.training import Callback, LogRecord, Run, TrainState


@final
class JsonLines(Callback):
    """One JSON object a log line: the metrics by name, ``step`` (environment steps), ``update``.

    A metric that is no finite number is null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: LogFile | None = None

    def on_start(self, run: Run, state: TrainState) -> None:
        if self._path.exists():
            lines = read_lines(self._path)
            kept = [json.dumps(line) + "\n" for line in lines if run.keeps(line["step"], line)]
            write_whole(self._path, "".join(kept).encode())
        self._file = LogFile(self._path)
        self._file.append(b"")  # So that there is one.

    def on_log(self, run: Run, record: LogRecord) -> None:
        if self._file is None:
            raise RuntimeError("on_log before on_start")
        metrics = {k: v if math.isfinite(v) else None for k, v in record.values.items()}
        line = {"step": record.env_steps, "update": record.update, **metrics}
        self._file.append(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The log lines that :class:`JsonLines` wrote, without a last one that a kill tore."""
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.endswith("\n"))


def read_rows(path: Path, run: Run) -> dict[int, dict[str, float]]:
    """What a resumed run has logged so far: metrics by environment step, of those that stay."""
    rows: dict[int, dict[str, float]] = {}
    for line in read_lines(path) if path.exists() else ():
        metrics = {name: x for name, x in line.items() if name not in ("step", "update")}
        if run.keeps(line["step"], metrics):
            metrics = {name: math.nan if x is None else x for name, x in metrics.items()}
            rows.setdefault(line["step"], {}).update(metrics)
    return rows
