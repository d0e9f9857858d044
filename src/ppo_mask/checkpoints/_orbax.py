"""Writes and reads a checkpoint's arrays with Orbax.

Only the first save or read imports this file, since importing Orbax takes a third of a second.
"""

import logging
import os
import re
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import numpy.typing as npt
import orbax.checkpoint as ocp

# Long after Orbax has raised an error, its threads may log the traceback once more.
logging.getLogger("absl").addFilter(
    lambda record: not record.pathname.endswith("orbax/checkpoint/_src/futures/future.py")
)
warnings.filterwarnings("ignore", r"coroutine '\w*Handler\.", RuntimeWarning)


def write(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Writes arrays into a new folder.

    Args:
        path: the folder, whose parent folder exists.
        arrays: the arrays, by name.
    """
    saved = ocp.args.PyTreeSave(dict(arrays))  # pyright: ignore[reportCallIssue]
    _checkpointer().save(path.absolute(), args=saved)


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, npt.NDArray[Any]]:
    """Reads some of the arrays, by name."""
    wanted = ocp.args.PyTreeRestore(
        item=dict.fromkeys(names, 0),  # pyright: ignore[reportCallIssue]
        restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names},
        partial_restore=True,
    )
    return _checkpointer().restore(path.absolute(), args=wanted)


def _checkpointer() -> ocp.Checkpointer:
    """Makes a checkpointer that waits for no other process."""
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )
    handler = ocp.PyTreeCheckpointHandler(multiprocessing_options=alone)
    return ocp.Checkpointer(handler, multiprocessing_options=alone)


def in_short(error: Exception) -> str:
    """Returns an error's reason without the paths that Orbax and TensorStore add."""
    text = str(error).partition("\n")[0]
    number = re.search(r"os_error_code='(\d+)'|^\[Errno (\d+)\]", text)
    reason = os.strerror(int(number[1] or number[2])) if number else text[:200]
    return reason or type(error).__name__
