"""Runs the programs and commands of a page, one after another, in one process.

So what they share is imported, traced and compiled once. Each has a ``__main__`` of its own and
imports the page's files anew. Commands that are no program of ours, or are more than one command,
are left to bash.
"""

import json
import os
import re
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from hackmatrix.__main__ import run as hackmatrix
from ppo_mask.runner.commands import of_any_run


def run_program(text: str) -> None:
    """A block of Python."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    sys.argv, sys.path[0] = ["-c"], ""
    exec(compile(text, "<block>", "exec"), main.__dict__)


def run_file(words: list[str]) -> None:
    """``python FILE WORDS``."""
    sys.argv, sys.path[0] = words, str(Path(words[0]).parent.resolve())
    runpy.run_path(words[0], run_name="__main__")


def run_command(line: str) -> None:
    """A line of a shell."""
    program, *words = shlex.split(line, comments=True) or ["true"]
    ours: dict[str, Callable[[], object]] = {
        "hackmatrix": hackmatrix,
        "ppo-mask": lambda: sys.exit(of_any_run()),
        "python": lambda: run_file(words),
    }
    if program not in ours or words[:1] == ["-m"] or re.search(r"[|&;<>$*`]", line):
        subprocess.run(["bash", "-c", line], check=True)
    elif words[:1] == ["-c"]:
        run_program(words[1])
    else:
        sys.argv = [program, *words]
        ours[program]()


def run_step(language: str, text: str) -> None:
    """Fails as the program's own process would: with an exception, or an exit code."""
    print("$", text.splitlines()[0], flush=True)
    known, paths, environment, folder = set(sys.modules), [*sys.path], {**os.environ}, os.getcwd()
    try:
        run_program(text) if language == "python" else run_command(text)
    except SystemExit as end:
        if end.code:
            raise
    finally:
        for name in set(sys.modules) - known:
            file = getattr(sys.modules[name], "__file__", None)
            if file and Path(file).resolve().is_relative_to(folder):
                del sys.modules[name]
        sys.path[:] = paths
        os.environ.clear()
        os.environ.update(environment)
        os.chdir(folder)


if __name__ == "__main__":
    for step in json.load(sys.stdin):
        run_step(*step)
