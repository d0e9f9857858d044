"""Log lines written to files: JSON lines, and TensorBoard's event files.

Both go on where a resumed run begins: what they hold of later updates, written before the run was
killed or wound back, is dropped when training starts, and so is a partial last line. So no point is
there twice.
"""

import json
import math
import os
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any, final

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto import event_pb2, summary_pb2

from ppo_mask.callbacks import Callback, LogRecord, Run
from ppo_mask.state import TrainState

# Protocol buffers make their classes at run time, where no type checker sees them.
_Event: Any = vars(event_pb2)["Event"]
_SessionLog: Any = vars(event_pb2)["SessionLog"]
_Summary: Any = vars(summary_pb2)["Summary"]


@final
class JsonLines(Callback):
    """One JSON object a log line: the figures by name, ``step`` (environment steps), ``update``.

    A figure that is no finite number is null.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def on_start(self, run: Run, state: TrainState) -> None:
        """See :class:`Callback`."""
        if self._path.exists():
            lines = read_lines(self._path)
            kept = [json.dumps(line) + "\n" for line in lines if run.keeps(line["step"], line)]
            _write_whole(self._path, "".join(kept).encode())
        self._file = self._path.open("a", encoding="utf-8")

    def on_log(self, run: Run, record: LogRecord) -> None:
        """See :class:`Callback`."""
        if self._file is None:
            raise RuntimeError("on_log before on_start")
        figures = {k: v if math.isfinite(v) else None for k, v in record.values.items()}
        line = {"step": record.env_steps, "update": record.update, **figures}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """See :class:`Callback`."""
        if self._file is not None:
            self._file.close()


def read_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The log lines that :class:`JsonLines` wrote, without a last one that a kill tore."""
    with path.open(encoding="utf-8") as file:
        yield from (json.loads(line) for line in file if line.endswith("\n"))


def read_rows(path: Path, run: Run) -> dict[int, dict[str, float]]:
    """What a resumed run has logged so far: figures by environment step, of those that stay."""
    rows: dict[int, dict[str, float]] = {}
    for line in read_lines(path) if path.exists() else ():
        figures = {name: x for name, x in line.items() if name not in ("step", "update")}
        if run.keeps(line["step"], figures):
            figures = {name: math.nan if x is None else x for name, x in figures.items()}
            rows.setdefault(line["step"], {}).update(figures)
    return rows


@final
class TensorBoard(Callback):
    """Event files for TensorBoard; the axis is environment steps.

    Args:
        directory: for the files.
        history: the file of :class:`JsonLines`, which comes before this callback: what a resumed
            run finds there and not here, because this sink was turned off, is filled in.
    """

    def __init__(self, directory: Path, history: Path | None = None) -> None:
        self._directory = directory
        self._history = history
        self._writer: Any = None

    def on_start(self, run: Run, state: TrainState) -> None:
        """See :class:`Callback`."""
        self._directory.mkdir(parents=True, exist_ok=True)
        steps: set[int] = set()
        for path in self._directory.glob("*.tfevents.*"):
            steps |= _keep_events(path, run)
        # tensorboardX's SummaryWriter hands events to a thread, where a kill loses them. Its
        # writer of files does not. File names hold whole seconds, hence the suffix.
        suffix = f".{os.getpid()}.{run.start_update}"
        self._writer = EventsWriter(str(self._directory / "events"), suffix)
        rows = {} if self._history is None else read_rows(self._history, run)
        for step in sorted(rows.keys() - steps):
            self._write_figures(step, rows[step])
        if run.start_step:  # Makes a TensorBoard that is open forget what was dropped.
            restart = _SessionLog(status=_SessionLog.START)
            self._write(_Event(step=run.start_step + 1, session_log=restart))

    def on_log(self, run: Run, record: LogRecord) -> None:
        """See :class:`Callback`."""
        self._write_figures(record.env_steps, record.values)

    def close(self) -> None:
        """See :class:`Callback`."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write_figures(self, step: int, figures: Mapping[str, float]) -> None:
        values = [_Summary.Value(tag=name, simple_value=x) for name, x in figures.items()]
        self._write(_Event(step=step, summary=_Summary(value=values)))

    def _write(self, event: Any) -> None:
        if self._writer is None:
            raise RuntimeError("on_log before on_start")
        event.wall_time = time.time()
        self._writer.write_event(event)
        self._writer.flush()


def _keep_events(path: Path, run: Run) -> set[int]:
    """Drops what does not stay; the steps of the figures that do."""
    content, kept, steps = path.read_bytes(), list[bytes](), set[int]()
    for record, payload in _records(content):
        event = _Event.FromString(payload)
        tags = [value.tag for value in event.summary.value]
        if run.keeps(event.step, tags):
            kept.append(record)
            steps |= {event.step} if tags else set()
    if (new := b"".join(kept)) != content:
        _write_whole(path, new)
    return steps


def _records(content: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The whole records of an event file, and what is in them; a torn last one is left out."""
    # A record: its payload's length (8 bytes), a checksum (4), the payload, a checksum (4).
    start = 0
    while start + 12 <= len(content):
        (length,) = struct.unpack_from("<Q", content, start)
        end = start + 12 + length + 4
        if end > len(content):
            return
        yield content[start:end], content[start + 12 : end - 4]
        start = end


def _write_whole(path: Path, content: bytes) -> None:
    """Replaces a file so that a kill leaves the old or the new one."""
    # TensorBoard reads every file with "tfevents" in its name: this one must not be left as one.
    new = path.with_name(".rewritten")
    new.write_bytes(content)
    os.replace(new, path)
