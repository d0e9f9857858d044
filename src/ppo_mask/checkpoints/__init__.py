"""Checkpoints: the files of a run on disk or in a bucket.

In: a state. Out: a folder that survives a kill at any moment. The run resumes from this folder bit
for bit, and :func:`load_policy` loads its policy. Loading runs no code from the files.
"""

from ._architecture import architecture_of
from ._checkpoint import Checkpoint, named_arrays
from ._files import write_whole
from ._lock import hold
from ._mirror import Mirror
from ._policy import is_saved_policy, load_policy, load_weights, save_policy
from ._run_dir import RunDir
from ._runs import (
    LATEST,
    Runs,
    cache_folder,
    check_run_name,
    expand_user,
    find_run,
    is_url,
    open_runs,
)

__all__ = [
    "LATEST",
    "Checkpoint",
    "Mirror",
    "RunDir",
    "Runs",
    "architecture_of",
    "cache_folder",
    "check_run_name",
    "expand_user",
    "find_run",
    "hold",
    "is_saved_policy",
    "is_url",
    "load_policy",
    "load_weights",
    "named_arrays",
    "open_runs",
    "save_policy",
    "write_whole",
]
