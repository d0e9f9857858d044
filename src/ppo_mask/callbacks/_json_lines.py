"""Writes log lines as JSON objects, and reads them again.

A resumed run first drops a partial last line, lines that a kill or a power cut damaged, and the
lines of updates that the run will repeat. Then the run appends to the log.
"""

import json
import math
from pathlib import Path
from typing import Any, final

from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.checkpoints._files import write_whole
from ppo_mask.errors import warn
from ppo_mask.training import Callback, LogRecord, Run, TrainState


@final
class JsonLines(Callback):
    """Writes a JSON object per log line: ``step`` (environment steps), ``update`` and metrics.

    A metric that is not finite becomes null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path.absolute()
        self._file = LogFile(path)

    def on_start(self, run: Run, state: TrainState) -> None:
        if self._path.exists():
            lines = read_log_lines(self._path)
            kept = [x for x in lines if x is not None and run.keeps(x["step"], x)]
            write_whole(self._path, "".join(json.dumps(x) + "\n" for x in kept).encode())
            if damaged := lines.count(None):
                warn(f"dropped the damaged lines of {self._path}: {damaged} of {len(lines)}")
        self._file.append(b"")  # So that the file exists.

    def on_log(self, run: Run, record: LogRecord) -> None:
        metrics = {k: v if math.isfinite(v) else None for k, v in record.values.items()}
        line = {"step": record.env_steps, "update": record.update, **metrics}
        self._file.append(json.dumps(line).encode() + b"\n")

    def close(self) -> None:
        self._file.close()


def read_rows(path: Path, run: Run) -> dict[int, dict[str, float]]:
    """Reads the metrics of the log lines that a resumed run keeps, by environment step."""
    rows: dict[int, dict[str, float]] = {}
    for line in filter(None, read_log_lines(path) if path.exists() else ()):
        metrics = {name: x for name, x in line.items() if name not in ("step", "update")}
        if run.keeps(line["step"], metrics):
            metrics = {name: math.nan if x is None else x for name, x in metrics.items()}
            rows.setdefault(line["step"], {}).update(metrics)
    return rows


def read_log_lines(path: Path) -> list[dict[str, Any] | None]:
    """Reads the log lines that :class:`JsonLines` wrote; None for each damaged line."""
    *whole, torn = path.read_bytes().split(b"\n")
    return [_parse(line) for line in (*whole, *([torn] if torn else []))]


def _parse(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line.decode())
        return found if isinstance(found["step"], int) else None
    except (ValueError, TypeError, KeyError):
        return None
