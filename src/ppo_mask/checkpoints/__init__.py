"""Checkpoints: what of a run lies on disk or in a bucket, and how it is read again.

In: a state. Out: a folder that a kill at any moment leaves whole, from which the run resumes to the
bit, or its policy is loaded. Nothing that is loaded can run code.
"""

from ._architecture import architecture_of as architecture_of
from ._files import write_whole as write_whole
from ._find import find_run as find_run
from ._find import local_path as local_path
from ._lock import hold as hold
from ._policy import Policy as Policy
from ._policy import load_policy as load_policy
from ._policy import save_policy as save_policy
from ._run_folder import LATEST as LATEST
from ._run_folder import RunFolder as RunFolder
from ._run_folder import cache_folder as cache_folder
from ._run_folder import check_new_run as check_new_run
from ._run_folder import check_run_name as check_run_name
from ._run_folder import copy_run as copy_run
from ._run_folder import create_run_folders as create_run_folders
from ._storage import Storage as Storage
from ._storage import is_url as is_url
from ._storage import open_storage as open_storage
from ._store import CheckpointStore as CheckpointStore
from ._store import named_arrays as named_arrays
from ._store import read_arrays as read_arrays
from ._store import read_description as read_description
from ._store import restore as restore

__all__ = [
    "LATEST",
    "CheckpointStore",
    "Policy",
    "RunFolder",
    "Storage",
    "architecture_of",
    "cache_folder",
    "check_new_run",
    "check_run_name",
    "copy_run",
    "create_run_folders",
    "find_run",
    "hold",
    "is_url",
    "load_policy",
    "local_path",
    "named_arrays",
    "open_storage",
    "read_arrays",
    "read_description",
    "restore",
    "save_policy",
    "write_whole",
]
