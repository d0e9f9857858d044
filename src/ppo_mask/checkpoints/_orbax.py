"""What a checkpoint's folder holds, as Orbax writes and reads it.

A module of its own, imported when the first checkpoint is saved or read: Orbax takes a third of a
second to import, which a run's first update need not wait for.
"""

import logging
import os
import re
import sys
import warnings
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, no_type_check

import jax
import numpy as np
import orbax.checkpoint as ocp

from ppo_mask.errors import RunError

_PLAIN = re.compile(r"[\w/.,+=@%#~ -]{1,500}", re.ASCII)

# Where something cannot be read or written, threads print a traceback of it too, and TensorStore
# one of an event loop that is closed by then; both also long after the error was raised.
logging.getLogger("absl").addFilter(
    lambda record: not record.pathname.endswith("orbax/checkpoint/_src/futures/future.py")
)
warnings.filterwarnings("ignore", r"coroutine '\w*Handler\.", RuntimeWarning)
_print_unraisable = sys.unraisablehook


# It may be called where beartype's lock is taken: see `Run.request_stop`.
@no_type_check
def _print_other(unraisable: Any) -> None:
    if str(unraisable.exc_value) != "Event loop is closed":
        _print_unraisable(unraisable)


sys.unraisablehook = _print_other


def write(
    path: Path, arrays: Mapping[str, Any], description: Mapping[str, Any], alone: bool = False
) -> None:
    """Writes a folder, new or anew; of arrays that several processes share, each writes its part.

    Args:
        path: of the folder, whose parent there is. Its own name has no unusual characters.
        arrays: by name.
        description: anything JSON can hold.
        alone: whether this process writes all of it, and waits for no other.
    """
    contents = ocp.args.Composite(
        state=ocp.args.PyTreeSave(dict(arrays)),  # pyright: ignore[reportCallIssue]
        description=ocp.args.JsonSave(dict(description)),  # pyright: ignore[reportCallIssue]
    )
    with _plain(path.parent) as parent:
        writers = _alone() if alone else ocp.options.MultiprocessingOptions()
        options = ocp.CompositeOptions(multiprocessing_options=writers)
        handler = ocp.CompositeCheckpointHandler(composite_options=options)
        writer = ocp.Checkpointer(handler, multiprocessing_options=writers)
        writer.save(parent / path.name, args=contents, force=True)


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
    reader = ocp.Checkpointer(ocp.CompositeCheckpointHandler(), multiprocessing_options=_alone())
    try:
        with _plain(path.absolute()) as plain:
            return reader.restore(plain, args=ocp.args.Composite(**items))
    except RunError:
        raise
    # Orbax and TensorStore raise errors of all kinds for what they cannot read.
    except Exception as error:
        raise RunError(f"checkpoint {path} is damaged: {in_short(error)}") from error


def _alone() -> ocp.options.MultiprocessingOptions:
    me = jax.process_index()
    return ocp.options.MultiprocessingOptions(
        primary_host=me, active_processes={me}, barrier_sync_key_prefix=f"process{me}"
    )


def in_short(error: Exception) -> str:
    """Why something failed, without the paths that Orbax and TensorStore put around it."""
    text = str(error).partition("\n")[0]
    number = re.search(r"os_error_code='(\d+)'|^\[Errno (\d+)\]", text)
    reason = os.strerror(int(number[1] or number[2])) if number else text[:200]
    return reason or type(error).__name__


@contextmanager
def _plain(path: Path) -> Generator[Path]:
    """The path, or a link to it if Orbax or TensorStore would not take the path as it is.

    They have their own ideas of brackets and stars (patterns), backslashes, ``gs:/``, bytes that
    are no text, and a length that leaves no room for the names of their files.
    """
    if _PLAIN.fullmatch(str(path)):
        yield path
        return
    with _plain_scratch() as scratch:
        link = Path(scratch, "link")
        link.symlink_to(path, target_is_directory=True)
        yield link


def _plain_scratch() -> TemporaryDirectory[str]:
    for parent in (None, "/tmp", "/var/tmp"):  # None is where TMPDIR says, which may be odd too.
        with suppress(OSError):
            scratch = TemporaryDirectory(prefix="ppo_mask-", dir=parent)
            if _PLAIN.fullmatch(scratch.name):
                return scratch
            scratch.cleanup()
    raise RunError(
        "a path with unusual characters needs a folder for temporary files whose path has none and "
        "that can be written to; set TMPDIR to one"
    )
