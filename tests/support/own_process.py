"""Programs in a Python of their own: with other variables, or several devices."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def python(
    *words: object, folder: Path | None = None, **variables: str | None
) -> "subprocess.CompletedProcess[str]":
    """What a program did that must not fail; a variable of None is not set."""
    environment = {k: v for k, v in (os.environ | variables).items() if v is not None}
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return done


def printed_with(devices: int, *words: str | Path) -> Any:
    """What a program that has so many devices prints as JSON in its last line."""
    done = python(*words, XLA_FLAGS=f"--xla_force_host_platform_device_count={devices}")
    return json.loads(done.stdout.splitlines()[-1])
