"""Programs that have several devices, on a machine of one."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any


def printed_with(devices: int, program: str | Path, *arguments: str) -> Any:
    """What a program that has so many devices prints as JSON in its last line."""
    environment = os.environ | {"XLA_FLAGS": f"--xla_force_host_platform_device_count={devices}"}
    command = [sys.executable, str(program), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
