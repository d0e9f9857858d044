"""Buckets: runs that are kept in an object store as well.

In: a run's local folder. Out: its copy at a URL, complete or not counted; and back.
"""

from ._bucket import Bucket as Bucket
from ._bucket import is_url as is_url
from ._bucket import open_bucket as open_bucket
from ._manifest import Manifest as Manifest
from ._sync import claim as claim
from ._sync import find_run as find_run
from ._sync import forget_after as forget_after
from ._sync import pull as pull
from ._sync import local_path as local_path
from ._sync import push as push

__all__ = [
    "Bucket",
    "Manifest",
    "claim",
    "find_run",
    "forget_after",
    "is_url",
    "open_bucket",
    "pull",
    "local_path",
    "push",
]
