"""Writes event files for TensorBoard; a resumed run rewrites the files from its log."""

import os
import socket
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

from tensorboardX.proto import event_pb2, summary_pb2
from tensorboardX.record_writer import masked_crc32c

from ppo_mask.callbacks._json_lines import read_rows
from ppo_mask.callbacks._log_file import LogFile
from ppo_mask.training import Callback, LogRecord, Run, TrainState

# Protocol buffers make their classes at run time, so no type checker knows them.
_Event: Any = vars(event_pb2)["Event"]
_SessionLog: Any = vars(event_pb2)["SessionLog"]
_Summary: Any = vars(summary_pb2)["Summary"]


@final
class TensorBoard(Callback):
    """Writes event files for TensorBoard; the horizontal axis is environment steps.

    A resumed run replaces the files of earlier processes by a new file, written from the run's log.
    So TensorBoard shows every point of the log once, even if an earlier file was lost or damaged.
    Earlier points get the wall time of the resume.

    Args:
        directory: the folder for the files.
        history: the file of a :class:`JsonLines`, which must come before this callback. Without a
            history, files that are already in the folder stay as they are.
    """

    def __init__(self, directory: Path, history: Path | None = None) -> None:
        self._directory = directory.absolute()
        self._history = history and history.absolute()
        self._file: LogFile | None = None

    def on_start(self, run: Run, state: TrainState) -> None:
        rows = {} if self._history is None else read_rows(self._history, run)
        # A point of a part of a line is at `start_step`; the log has dropped it.
        first = run.start_step + (run.logged_updates == run.start_update)
        replaced = list[Path]()
        self._directory.mkdir(parents=True, exist_ok=True)
        if self._history is not None and (rows or not run.start_step):
            first, replaced = 0, [*self._directory.glob("*.tfevents.*")]
        # Not tensorboardX's SummaryWriter: a full disk ends its thread, and soon blocks the run.
        # TensorBoard orders files by the second in the file name; the end of the name makes it
        # unique within this second.
        now, by = f"{time.time():.0f}", f"{os.getpid()}.{time.monotonic_ns()}"
        name = f"events.out.tfevents.{now}.{socket.gethostname()}.{by}"
        self._file = LogFile(self._directory / name)
        # `start` makes a running TensorBoard drop the points from `first` on.
        # TensorBoard ignores a run's first such event, so every file has one.
        start = _Event(step=first, session_log=_SessionLog(status=_SessionLog.START))
        content = _encode(_Event(file_version="brain.Event:2")) + _encode(start)
        content += b"".join(_encode_metrics(step, rows[step]) for step in sorted(rows))
        if self._file.append(content):
            for path in replaced:
                path.unlink(missing_ok=True)

    def on_log(self, run: Run, record: LogRecord) -> None:
        assert self._file is not None
        self._file.append(_encode_metrics(record.env_steps, record.values))

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _encode_metrics(step: int, metrics: Mapping[str, float]) -> bytes:
    values = [_Summary.Value(tag=name, simple_value=x) for name, x in metrics.items()]
    return _encode(_Event(step=step, summary=_Summary(value=values)))


def _encode(event: Any) -> bytes:
    event.wall_time = time.time()
    payload: bytes = event.SerializeToString()
    length = struct.pack("<Q", len(payload))
    return length + _checksum(length) + payload + _checksum(payload)


def _checksum(content: bytes) -> bytes:
    return struct.pack("<I", masked_crc32c(content))
