"""TensorBoard's event files; a resumed run appends to them, as to those of :class:`JsonLines`."""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, final

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import masked_crc32c

from ppo_mask.callbacks._json_lines import read_rows
from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.checkpoints import write_whole
from ppo_mask.errors import RunError
from ppo_mask.training import Callback, LogRecord, Run, TrainState

# Protocol buffers make their classes at run time, where no type checker sees them.
_Event: Any = vars(event_pb2)["Event"]
_SessionLog: Any = vars(event_pb2)["SessionLog"]
_Summary: Any = vars(summary_pb2)["Summary"]


@final
class TensorBoard(Callback):
    """Event files for TensorBoard; the axis is environment steps.

    Args:
        directory: for the files.
        history: the file of :class:`JsonLines`, which comes before this callback. What a resumed
            run finds there and not here is filled in: this sink was turned off, or the files were
            copied to a bucket while a step was being written to both.
    """

    def __init__(self, directory: Path, history: Path | None = None) -> None:
        self._directory = directory
        self._history = history
        self._file: LogFile | None = None

    def on_start(self, run: Run, state: TrainState) -> None:
        try:
            self._directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"cannot make {self._directory}: {error.strerror}") from error
        known: set[tuple[int, str]] = set()
        for path in self._directory.glob("*.tfevents.*"):
            known |= _keep_events(path, run)
        # tensorboardX's SummaryWriter hands events to a thread, where a kill loses them, and is at
        # an end where a disk is full. Its names of files hold whole seconds, hence the rest.
        now, by = f"{time.time():.0f}", f"{os.getpid()}.{run.start_update}"
        name = f"events.out.tfevents.{now}.{socket.gethostname()}.{by}"
        self._file = LogFile(self._directory / name)
        self._write(_Event(file_version="brain.Event:2"))
        rows = {} if self._history is None else read_rows(self._history, run)
        for step, row in sorted(rows.items()):
            if missing := {name: x for name, x in row.items() if (step, name) not in known}:
                self._write_metrics(step, missing)
        if run.start_step:  # Makes a TensorBoard that is open forget what was dropped.
            restart = _SessionLog(status=_SessionLog.START)
            self._write(_Event(step=run.start_step + 1, session_log=restart))

    def on_log(self, run: Run, record: LogRecord) -> None:
        self._write_metrics(record.env_steps, record.values)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write_metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        values = [_Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
        self._write(_Event(step=step, summary=_Summary(value=values)))

    def _write(self, event: Any) -> None:
        if self._file is None:
            raise RuntimeError("on_log before on_start")
        event.wall_time = time.time()
        payload: bytes = event.SerializeToString()
        length = struct.pack("<Q", len(payload))
        self._file.append(length + _checksum(length) + payload + _checksum(payload))


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(content))


def _keep_events(path: Path, run: Run) -> set[tuple[int, str]]:
    """Drops what does not stay; the step and name of each metric that does."""
    content, kept, known = path.read_bytes(), list[bytes](), set[tuple[int, str]]()
    for record, payload in _records(content):
        event = _Event.FromString(payload)
        tags = [value.tag for value in event.summary.value]
        if run.keeps(event.step, tags):
            kept.append(record)
            known |= {(event.step, tag) for tag in tags}
    if (new := b"".join(kept)) != content:
        write_whole(path, new)
    return known


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
