"""Several processes, on one host or on several, that train together as one run.

Each process runs the same program on its own devices, and JAX connects the processes. Between two
chunks of updates all processes must make the same decisions. So process 0 makes every decision that
depends on a clock, a signal or a file, and sends the decision to the other processes.
"""

import os
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar
from urllib.request import Request, urlopen

import jax
import numpy as np
from jax.experimental import multihost_utils

from ppo_mask.errors import RunError, first_line

Result = TypeVar("Result")

HEARTBEAT_SECONDS = 60
"""How long a process may be silent before JAX counts it as lost and ends the other processes."""

_LONGEST = 80  # the bytes of a reason to stop that other processes learn
_NUMBER, _COUNT, _ADDRESS = "JAX_PROCESS_ID", "JAX_NUM_PROCESSES", "JAX_COORDINATOR_ADDRESS"
# Where Kubernetes and a TPU VM say which hosts a slice has.
_TPU_HOSTS = "TPU_PROCESS_ADDRESSES", "TPU_WORKER_HOSTNAMES"
_TPU_METADATA = "computeMetadata/v1/instance/attributes/worker-network-endpoints"
_METADATA_SECONDS = 5.0


def connect(wanted: bool | None) -> bool:
    """Joins the other processes of the run; call this before anything uses JAX.

    On TPU slices of several hosts, under Slurm, in Kubernetes jobs and under Open MPI, JAX finds
    the other processes by itself. Elsewhere, set three environment variables:
    ``JAX_COORDINATOR_ADDRESS`` (host:port of process 0), ``JAX_NUM_PROCESSES`` and
    ``JAX_PROCESS_ID``.

    Args:
        wanted: whether to connect; None connects if environment variables or a TPU's hosts show
            that there are other processes.

    Returns:
        Whether this process is connected.

    Raises:
        RunError: the other processes cannot be found, or the program has used JAX already.
    """
    if jax.distributed.is_initialized():
        return True
    if wanted is False or (wanted is None and not _expected()):
        return False
    by_hand = {name: _number_in(name) for name in (_NUMBER, _COUNT) if name in os.environ}
    if len(by_hand) == 1 or (by_hand and _ADDRESS not in os.environ):
        raise RunError(f"{_ADDRESS}, {_COUNT} and {_NUMBER} go together: set all three or none")
    try:
        jax.distributed.initialize(
            num_processes=by_hand.get(_COUNT),
            process_id=by_hand.get(_NUMBER),
            heartbeat_timeout_seconds=HEARTBEAT_SECONDS,
        )
    except Exception as error:  # Of any kind, since JAX trusts the variables of a cluster.
        if "must be called before" in str(error):
            raise RunError(
                "the program used JAX before it joined the other processes of the run: call "
                "jax.distributed.initialize() before anything else uses JAX"
            ) from error
        raise RunError(
            f"--distributed found no other processes ({first_line(error)}); where JAX cannot find "
            f"them by itself, set {_ADDRESS}, {_COUNT} and {_NUMBER}"
        ) from error
    return True


def _expected() -> bool:
    if _COUNT in os.environ:
        return True
    # Set by srun for each of its tasks; a batch script by itself is one task.
    if _number_in("SLURM_STEP_NUM_TASKS") > 1:
        return True
    chips = [*Path("/dev").glob("accel*"), *Path("/dev/vfio").glob("[0-9]*")]
    return find_spec("libtpu") is not None and bool(chips) and "," in _tpu_hosts()


def _tpu_hosts() -> str:
    """Returns the hosts of this host's TPU slice, between commas; empty if nothing names them."""
    for name in _TPU_HOSTS:
        if name in os.environ:
            return os.environ[name]
    server = os.environ.get("GCE_METADATA_IP", "metadata.google.internal")
    request = Request(f"http://{server}/{_TPU_METADATA}", headers={"Metadata-Flavor": "Google"})
    with suppress(OSError), urlopen(request, timeout=_METADATA_SECONDS) as reply:
        return reply.read().decode()
    return ""  # Notebooks with a TPU have no such server.


def _number_in(variable: str) -> int:
    """Reads a variable of the environment; 1 if it is not set."""
    text = os.environ.get(variable, "1")
    try:
        return int(text)
    except ValueError:
        raise RunError(f"the variable {variable} must be a number, got {text!r}") from None


def is_multiprocess() -> bool:
    """Whether this run has several processes."""
    return jax.process_count() > 1


def is_process_0() -> bool:
    """Whether this is process 0, which writes the files and prints. Does not start JAX."""
    return not jax.distributed.is_initialized() or jax.process_index() == 0


def broadcast_from_0(number: int) -> int:
    """Returns process 0's int32 ``number`` in every process. All processes must take part."""
    if not is_multiprocess():
        return number
    return int(multihost_utils.broadcast_one_to_all(np.int32(number)))


def broadcast_text_from_0(make: Callable[[], str], what: str) -> str:
    """Returns, in every process, the text that process 0 makes. All processes must take part.

    Args:
        make: makes the text; only process 0 calls it.
        what: names the attempt in an error, as in "process 0 could not <what>".

    Raises:
        RunError: ``make`` raised a RunError; the other processes raise an error with ``what``.
    """
    if not is_multiprocess():
        return make()
    text = ""
    # Connect before ``make``, which may take long: on CPUs, connecting times out after 30 s.
    broadcast_from_0(0)
    if is_process_0():
        try:
            text = make()
        except RunError:
            broadcast_from_0(-1)
            raise
    content = os.fsencode(text)  # A path may have bytes that are not text.
    size = broadcast_from_0(len(content))
    if size < 0:
        raise RunError(f"process 0 could not {what}; its message says why")
    words = np.frombuffer(content.ljust(size), np.uint8)
    sent = multihost_utils.broadcast_one_to_all(words) if size else words
    return os.fsdecode(np.asarray(sent).tobytes())


def on_process_0(act: Callable[[], None], what: str) -> None:
    """Runs ``act`` on process 0; the others wait. Errors as in :func:`broadcast_text_from_0`."""

    def make() -> str:
        act()
        return ""

    broadcast_text_from_0(make, what)


def on_all_processes(make: Callable[[], Result], what: str) -> Result:
    """Runs ``make`` on every process; if ``make`` fails on one of them, all raise an error.

    Without this function, a process on which ``make`` fails would end, and the other processes
    would wait for the ended process forever. All processes must take part.

    Args:
        make: must not wait for other processes.
        what: names the attempt in an error, as in "another process could not <what>".

    Returns:
        This process's result.

    Raises:
        RunError: ``make`` raised a RunError, on this process or on another.
    """
    try:
        result = make()
    except RunError:
        all_agree(False)
        raise
    if not all_agree(True):
        raise RunError(f"another process could not {what}; its message says why")
    return result


def all_agree(number: int) -> bool:
    """Whether all processes have the same int32 number. All processes must take part."""
    if not is_multiprocess():
        return True
    return bool(np.ptp(multihost_utils.process_allgather(np.int32(number))) == 0)


def reason_of_any(reason: str | None) -> str | None:
    """Tells all processes if one has a reason to stop the run. All processes must take part.

    Args:
        reason: this process's reason, the name of a signal or another text; None for no reason.

    Returns:
        This process's reason or, without one, the first 80 bytes of another's; None if no process
        has a reason.
    """
    if not is_multiprocess():
        return reason
    mine = np.frombuffer((reason or "").encode()[:_LONGEST].ljust(_LONGEST), np.uint8)
    rows = multihost_utils.process_allgather(mine)
    reasons = (np.asarray(row).tobytes().decode(errors="ignore").strip() for row in rows)
    return reason or next(filter(None, reasons), None)


def wait_for_all(what: str) -> None:
    """Waits until all processes have called this function with the same ``what``."""
    if is_multiprocess():
        multihost_utils.sync_global_devices(what)
