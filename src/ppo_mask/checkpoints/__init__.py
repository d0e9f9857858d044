"""Checkpoints: the files of a run on disk or in a bucket.

In: a state. Out: a folder that survives a kill at any moment. The run resumes from this folder bit
for bit, and :func:`load_policy` loads its policy. Loading runs no code from the files.
"""

from ._architecture import architecture_of
from ._checkpoint import Checkpoint
from ._policy import load_policy, load_weights, save_policy
from ._run_dir import RunDir

__all__ = ["Checkpoint", "RunDir", "architecture_of", "load_policy", "load_weights", "save_policy"]
