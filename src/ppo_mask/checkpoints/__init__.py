"""Checkpoints: the files of a run on disk or in a bucket.

In: a state. Out: a folder that survives a kill at any moment. The run resumes from this folder bit
for bit, and :func:`load_policy` loads its policy. Loading runs no code from the files.
"""

from ._architecture import architecture_of
from ._files import write_whole
from ._find import find_run, local_path
from ._lock import hold
from ._policy import is_saved_policy, load_policy, load_weights, save_policy
from ._run_folder import (
    LATEST,
    RunFolder,
    cache_folder,
    check_new_run,
    check_run_name,
    copy_run,
    create_run_folders,
    expand_user,
)
from ._storage import Storage, is_url, open_storage
from ._store import CheckpointStore, named_arrays, read_arrays, read_description, restore

__all__ = [
    "LATEST",
    "CheckpointStore",
    "RunFolder",
    "Storage",
    "architecture_of",
    "cache_folder",
    "check_new_run",
    "check_run_name",
    "copy_run",
    "create_run_folders",
    "expand_user",
    "find_run",
    "hold",
    "is_saved_policy",
    "is_url",
    "load_policy",
    "load_weights",
    "local_path",
    "named_arrays",
    "open_storage",
    "read_arrays",
    "read_description",
    "restore",
    "save_policy",
    "write_whole",
]
