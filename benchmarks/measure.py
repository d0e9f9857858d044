"""Measures one subject in a process of its own, so that compile time and memory are its own too.

python benchmarks/measure.py '{"subject": "environment", "num_envs": 2048, "runs": 7}'
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

_FEWEST_RUNS, _LONG_ENOUGH = 3, 30.0  # seconds


@dataclass(frozen=True)
class Measurement:
    """What one process found out.

    Attributes:
        subject: its name.
        num_envs: environments side by side.
        steps: environment steps of one run.
        seconds: of each run, in the order in which they were made.
        trace_seconds: until the program was ready to be compiled.
        compile_seconds: until it was compiled, or read from the cache.
        peak_mb: most memory that the process held on the host.
        device: kind of device.
        devices: on how many at once.
    """

    subject: str
    num_envs: int
    steps: int
    seconds: list[float]
    trace_seconds: float
    compile_seconds: float
    peak_mb: float
    device: str
    devices: int

    @property
    def rates(self) -> list[float]:
        """Environment steps per second of each run, slowest first."""
        return sorted(self.steps / seconds for seconds in self.seconds)

    @property
    def rate(self) -> float:
        """The median rate."""
        return self.rates[len(self.seconds) // 2]


def measure(
    subject: str,
    num_envs: int,
    runs: int,
    num_steps: int | None = None,
    cache: str | None = None,
    devices: int | None = 1,
) -> Measurement:
    """Measures here, in this process.

    Args:
        subject: "training", or a name in ``subjects.SUBJECTS`` or ``peers.PEERS``.
        num_envs: environments side by side.
        runs: how often the compiled program is run, not counting a first time; fewer times, but
            three at least, where that takes half a minute.
        num_steps: steps of one run in each environment; by default the subject's own.
        cache: a folder for compiled programs; none: every program is compiled.
        devices: on how many at once; None for all that there are, of a CPU its cores.
    """
    import jax

    sys.path.insert(0, str(Path(__file__).parent))
    import subjects
    from peers import PEERS

    from ppo_mask import cores

    if devices is None:
        cores.make_devices()
        devices = jax.device_count()
    steps = {} if num_steps is None else {"num_steps": num_steps}
    if subject in PEERS:
        make, name = PEERS[subject]
        run, carry, count = subjects.spread(partial(make, name), num_envs, devices, **steps)
    else:
        run, carry, count = subjects.subject(subject, num_envs, devices, **steps)
    if cache is not None:  # From here on: building the start is not what is measured.
        jax.config.update("jax_compilation_cache_dir", cache)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    began = time.perf_counter()
    lowered = jax.jit(run, donate_argnums=0).lower(carry)
    traced = time.perf_counter()
    compiled = lowered.compile()
    ready = time.perf_counter()

    carry = jax.block_until_ready(compiled(carry))
    seconds: list[float] = []
    while len(seconds) < runs and (len(seconds) < _FEWEST_RUNS or sum(seconds) < _LONG_ENOUGH):
        started = time.perf_counter()
        carry = jax.block_until_ready(compiled(carry))
        seconds.append(time.perf_counter() - started)
    device = jax.devices()[0]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return Measurement(
        subject=subject,
        num_envs=num_envs,
        steps=count,
        seconds=seconds,
        trace_seconds=traced - began,
        compile_seconds=ready - traced,
        peak_mb=peak,
        device=device.device_kind,
        devices=devices,
    )


def measure_apart(**arguments: Any) -> Measurement:
    """Measures in a fresh process; the arguments are those of :func:`measure`.

    Raises:
        RuntimeError: the process failed; the message ends with what it printed last.
    """
    command = [sys.executable, __file__, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring {arguments['subject']} failed:\n{done.stderr[-3000:]}")
    return Measurement(**json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    print(json.dumps(asdict(measure(**json.loads(sys.argv[1])))))
