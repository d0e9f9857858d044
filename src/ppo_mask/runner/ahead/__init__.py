"""Programs compiled ahead, for devices that are not here: what ``--compile-for`` does.

In: a task and all settings of a run. Out: a :class:`Report` on the very program that would train
there. No run is begun and no file is written.
"""

from ._compile import compile_ahead, print_program
from ._report import Loop, Memory, Report

__all__ = ["Loop", "Memory", "Report", "compile_ahead", "print_program"]
