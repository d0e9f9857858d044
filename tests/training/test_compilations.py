"""How often the training program is compiled: once by each process, from the cache if it can."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"


def count_compilations(arguments: list[str], cache: Path) -> tuple[int, int]:
    """How often a process compiled or loaded the training program, and how often it loaded it."""
    environment = {"JAX_LOG_COMPILES": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    done = subprocess.run(
        [sys.executable, *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return (
        len(re.findall(r"Finished XLA compilation of jit\(run_chunk\)", done.stderr)),
        len(re.findall(r"cache hit for 'jit_run_chunk'", done.stderr)),
    )


@pytest.mark.slow
def test_runner_compiles_once_in_each_start(tmp_path: Path) -> None:
    folder = ["--checkpoint-dir", str(tmp_path / "runs")]
    program = [str(CORRIDOR), "--num-devices", "2", "--log-interval", "1"]
    starts = [
        ([*folder, "--run-name", "first"], 0),
        ([*folder, "--run-name", "second"], 1),
        (["--resume", str(tmp_path / "runs" / "first"), "--total-timesteps", "384"], 1),
    ]
    for flags, loaded in starts:
        assert count_compilations([*program, *flags], tmp_path / "cache") == (1, loaded)
