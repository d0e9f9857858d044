"""What a checkpoint's folder holds, as Orbax writes and reads it.

A module of its own, imported when the first checkpoint is saved or read: Orbax takes a third of a
second to import, which a run's first update need not wait for.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
import orbax.checkpoint as ocp

from ppo_mask.errors import RunError


def write(path: Path, arrays: Mapping[str, Any], description: Mapping[str, Any]) -> None:
    """Writes a new folder; of arrays that several processes share, each writes its part."""
    ocp.Checkpointer(ocp.CompositeCheckpointHandler()).save(
        path,
        args=ocp.args.Composite(
            state=ocp.args.PyTreeSave(dict(arrays)),  # pyright: ignore[reportCallIssue]
            description=ocp.args.JsonSave(dict(description)),  # pyright: ignore[reportCallIssue]
        ),
    )


def read_description(path: Path) -> dict[str, Any]:
    """The description that was written.

    Raises:
        RunError: it cannot be read.
    """
    return _restore(path, description=ocp.args.JsonRestore())["description"]


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, Any]:
    """Some of the arrays that were written, by name.

    Raises:
        RunError: they cannot be read.
    """
    state = ocp.args.PyTreeRestore(
        item=dict.fromkeys(names, 0),  # pyright: ignore[reportCallIssue]
        restore_args={name: ocp.RestoreArgs(restore_type=np.ndarray) for name in names},
        partial_restore=True,
    )
    return _restore(path, state=state)["state"]


def _restore(path: Path, **items: Any) -> Any:
    # Of several processes each reads for itself, and whatever it needs.
    me = jax.process_index()
    alone = ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )
    reader = ocp.Checkpointer(ocp.CompositeCheckpointHandler(), multiprocessing_options=alone)
    try:
        return reader.restore(path.absolute(), args=ocp.args.Composite(**items))
    # Orbax and TensorStore raise errors of all kinds for what they cannot read.
    except Exception as error:
        reason = str(error).partition("\n")[0][:200] or type(error).__name__
        raise RunError(f"checkpoint {path} is damaged: {reason}") from error
