"""For tests that start processes: waiting for them, and where they meet."""

import itertools
import os
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from typing import Any

PATIENCE = 600.0
"""Seconds after which what has not happened never will, however slow and busy the machine is."""

# Below those that an operating system gives away, and of each worker its own.
_PORTS_OF_A_WORKER = 2_000
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % 10
_first = 10_000 + _PORTS_OF_A_WORKER * _worker
_begin = os.getpid() * 61  # Of two sessions on a machine, each begins somewhere else.
_ports = itertools.cycle(
    _first + (_begin + n) % _PORTS_OF_A_WORKER for n in range(_PORTS_OF_A_WORKER)
)


def wait_until(happened: Callable[[], Any], processes: Sequence[subprocess.Popen[Any]]) -> None:
    """Waits for something; all processes must live meanwhile."""
    began = time.monotonic()
    while not happened():
        over = [process for process in processes if process.poll() is not None]
        assert not over, [(process.returncode, process.communicate()) for process in over]
        assert time.monotonic() - began < PATIENCE
        time.sleep(0.01)


def meeting_place() -> str:
    """An address on this machine that nobody listens at, nor will before the test is over.

    A port that the system names is free only until it names it to somebody else.
    """
    for port in _ports:
        with socket.socket() as tried:
            if tried.connect_ex(("127.0.0.1", port)):
                return f"127.0.0.1:{port}"
    raise AssertionError("no port is free")
