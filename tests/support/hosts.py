"""Processes that stand in for hosts: they train one run. For tests."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import jax

from waiting import PATIENCE, meeting_place

CORRIDOR = Path(__file__).with_name("corridor.py")
STEPS_PER_UPDATE = 32


def start(*flags: str, count: int = 2, disks: Path | None = None) -> list["subprocess.Popen[str]"]:
    """So many processes of one run, each with two devices.

    Args:
        flags: for the program.
        count: of the processes.
        disks: a folder; each process has its home in one of its own in it. None for the user's.
    """
    common = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    common |= {"JAX_COORDINATOR_ADDRESS": meeting_place(), "JAX_NUM_PROCESSES": str(count)}
    # What is compiled is for all; it is no part of a host's disk.
    common["JAX_COMPILATION_CACHE_DIR"] = str(
        jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    )
    return [
        subprocess.Popen(
            [sys.executable, str(CORRIDOR), *flags],
            env=common
            | {"JAX_PROCESS_ID": str(number)}
            | ({} if disks is None else {"HOME": str(disks / str(number))}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]


def finish(processes: Sequence["subprocess.Popen[str]"], code: int = 0) -> list[tuple[str, str]]:
    """What they have printed, by the end; all have this exit code."""
    outputs: list[tuple[str, str]] = []
    try:
        for process in processes:
            out, err = process.communicate(timeout=PATIENCE)
            assert process.returncode == code, err[-3000:]
            outputs.append((out, err))
    finally:
        for process in processes:
            process.kill()
    return outputs


def updates(total: int) -> tuple[str, str]:
    """The flag for so many updates."""
    return "--total-timesteps", str(total * STEPS_PER_UPDATE)
