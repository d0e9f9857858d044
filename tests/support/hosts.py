"""Processes that stand in for hosts: they train one run. For tests.

As a program it is the corridor on a host that may die, or that copies what is in the bucket, before
it writes to the bucket or deletes from it: see :func:`dying` and :func:`watching`.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
from fsspec.implementations.local import LocalFileSystem

from waiting import PATIENCE, meeting_place

CORRIDOR = Path(__file__).with_name("corridor.py")
STEPS_PER_UPDATE = 32
WRITES = ("put_file", "pipe_file", "rm_file")


def start(
    *flags: str, count: int = 2, disks: Path | None = None, program: Path = CORRIDOR, **more: str
) -> list["subprocess.Popen[str]"]:
    """So many processes of one run, each with two devices.

    Args:
        flags: for the program.
        count: of the processes.
        disks: a folder; each process has its cache in one of its own in it. None for the user's.
        program: what to run.
        more: variables of the processes.
    """
    common = os.environ | {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
    common |= {"JAX_COORDINATOR_ADDRESS": meeting_place(), "JAX_NUM_PROCESSES": str(count), **more}
    # What is compiled is for all; it is no part of a host's disk.
    common["JAX_COMPILATION_CACHE_DIR"] = str(
        jax.config.jax_compilation_cache_dir  # pyright: ignore[reportAttributeAccessIssue]
    )
    return [
        subprocess.Popen(
            [sys.executable, str(program), *flags],
            env=common
            | {"JAX_PROCESS_ID": str(number)}
            | ({} if disks is None else {"XDG_CACHE_HOME": str(disks / str(number))}),
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


def dying(who: str, operation: int, scratch: Path) -> dict[str, str]:
    """Variables for hosts of which some are killed in place of a write, counted from 0.

    Args:
        who: "first", "second" or "both".
        operation: the number of the write.
        scratch: a folder that is there.
    """
    return {"HOSTS_PLAN": json.dumps(["die", who, operation, str(scratch)])}


def watching(bucket: Path, scratch: Path) -> dict[str, str]:
    """Variables for hosts that copy the bucket before each write: to ``0``, ``1`` and so on."""
    return {"HOSTS_PLAN": json.dumps(["copy", str(bucket), 0, str(scratch)])}


def _act_on_each_operation() -> None:
    act, what, operation, scratch = json.loads(os.environ["HOSTS_PLAN"])
    Path(scratch, f"pid{os.environ['JAX_PROCESS_ID']}").write_text(str(os.getpid()))
    done = 0

    def before() -> None:
        nonlocal done
        if act == "copy":
            shutil.copytree(what, Path(scratch, str(done)))
        elif done == operation:
            Path(scratch, "died").touch()
            for number in {"first": [0], "second": [1], "both": [1, 0]}[what]:
                os.kill(int(Path(scratch, f"pid{number}").read_text()), signal.SIGKILL)
        done += 1

    def wrap(name: str) -> Callable[..., Any]:
        operate: Callable[..., Any] = getattr(LocalFileSystem, name, None)  # pyright: ignore

        def called(self: Any, *args: Any, **kwargs: Any) -> Any:
            before()
            return operate(self, *args, **kwargs)

        return called

    for name in WRITES:
        setattr(LocalFileSystem, name, wrap(name))


if __name__ == "__main__":
    from corridor import DEFAULTS, TASK
    from ppo_mask.runner import main

    _act_on_each_operation()
    raise SystemExit(main(TASK, DEFAULTS))
