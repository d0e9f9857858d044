"""Measures the time from the start of the trainer's process to its first update."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

_TRAINER = Path(__file__).parent.parent / "examples" / "train_hackmatrix.py"
_POLL_SECONDS = 0.01


def start(cache: Path, *flags: str) -> float:
    """Starts the trainer, runs one update, and waits until the process ends.

    Args:
        cache: the folder of the compilation cache, instead of the user's own.
        flags: flags that override the trainer's defaults.

    Returns:
        Seconds until the first update began.

    Raises:
        RuntimeError: the trainer failed; the message has the end of its output.
    """
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    # Container images set this variable; with it, every start would compile all Python modules.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with TemporaryDirectory() as folder:
        where = ["--checkpoint-dir", folder, "--run-name", "run", "--total-timesteps", "1"]
        log, printed = Path(folder) / "run" / "metrics.jsonl", Path(folder) / "printed"
        began = time.perf_counter()
        with printed.open("w") as file:
            process = subprocess.Popen(
                [sys.executable, str(_TRAINER), *where, *flags],
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
            )
        while process.poll() is None and not (log.exists() and log.read_text().endswith("\n")):
            time.sleep(_POLL_SECONDS)
        seconds = time.perf_counter() - began
        if process.wait():
            raise RuntimeError(f"the trainer failed:\n{printed.read_text()[-3000:]}")
        logged = json.loads(log.read_text().splitlines()[0])
    return seconds - logged["step"] / logged["train/steps_per_second"]
