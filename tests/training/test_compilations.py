"""How often the training program is compiled: once by each process, from the cache if it can."""

from pathlib import Path

import pytest

from own_process import python

CORRIDOR = Path(__file__).parents[1] / "support" / "corridor.py"


def count_compilations(arguments: list[str], cache: Path) -> tuple[int, int]:
    """How often a process compiled or loaded the training program, and how often it loaded it."""
    environment = {"JAX_LOG_COMPILES": "1", "JAX_COMPILATION_CACHE_DIR": str(cache)}
    environment["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    said = python(*arguments, **environment).stderr
    compiled = said.count("Finished XLA compilation of jit(run_chunk)")
    return compiled, said.count("cache hit for 'jit_run_chunk'")


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
