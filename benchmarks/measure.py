"""Measures one subject in its own process, so that compile time and memory belong to it alone.

python benchmarks/measure.py '{"subject": "environment", "num_envs": 2048, "runs": 7}'
"""

import json
import resource
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

_FEWEST_RUNS, _LONG_ENOUGH = 2, 30.0  # seconds
PER_MB = 1024**2 if sys.platform == "darwin" else 1024  # macOS counts memory in bytes.


@dataclass(frozen=True)
class Measurement:
    """The results of one measurement.

    Attributes:
        subject: its name.
        num_envs: number of environments.
        steps: environment steps of one run.
        seconds: duration of each run, in order.
        trace_seconds: time to trace and lower the program.
        compile_seconds: time to compile the program.
        peak_mb: peak memory of the process on the host.
        device: kind of device.
        devices: number of devices.
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


@dataclass(frozen=True)
class Ratio:
    """The ratio of two subjects that take turns in one process, so other load slows both equally.

    Attributes:
        subject: the subject whose rate is the numerator.
        other: the subject whose rate is the denominator.
        num_envs: number of environments of each subject.
        ratios: the ratio in each turn.
        device: kind of device.
        devices: number of devices.
    """

    subject: str
    other: str
    num_envs: int
    ratios: list[float]
    device: str
    devices: int

    @property
    def ratio(self) -> float:
        """The median ratio."""
        return sorted(self.ratios)[len(self.ratios) // 2]


class Program:
    """A compiled subject; its numbers are those of :class:`Measurement`."""

    def __init__(self, name: str, num_envs: int, num_steps: int | None, devices: int) -> None:
        """Makes, compiles and runs the subject once; the arguments are those of :func:`measure`."""
        import jax
        import subjects
        from peers import PEERS

        steps = {} if num_steps is None else {"num_steps": num_steps}
        if name in PEERS:
            make, game = PEERS[name]
            made = subjects.spread(partial(make, game), num_envs, devices, **steps)
        else:
            made = subjects.subject(name, num_envs, devices, **steps)
        began = time.perf_counter()
        lowered = jax.jit(made.run, donate_argnums=0).lower(made.start)
        traced = time.perf_counter()
        self._run = lowered.compile()
        self.trace_seconds, self.compile_seconds = traced - began, time.perf_counter() - traced
        self.steps = made.steps
        self._carry = jax.block_until_ready(self._run(made.start))

    def seconds(self) -> float:
        """Runs the program once more, and returns the seconds that the run took."""
        import jax

        started = time.perf_counter()
        self._carry = jax.block_until_ready(self._run(self._carry))
        return time.perf_counter() - started


def _count(devices: int | None) -> int:
    import jax

    from ppo_mask.devices import cpu as cores

    if devices is not None:
        return devices
    cores.make_devices()
    return jax.device_count()


def _enough(seconds: list[float], runs: int) -> bool:
    return len(seconds) >= runs or (len(seconds) >= _FEWEST_RUNS and sum(seconds) >= _LONG_ENOUGH)


def measure(
    subject: str, num_envs: int, runs: int, num_steps: int | None = None, devices: int | None = 1
) -> Measurement:
    """Measures a subject in this process.

    Args:
        subject: "training", or a name in ``subjects.SUBJECTS`` or ``peers.PEERS``.
        num_envs: number of environments.
        runs: number of timed runs, after a warm-up run. The measurement ends early if two or more
            runs have taken half a minute.
        num_steps: steps of one run in each environment; by default the subject's own.
        devices: number of devices; None for all devices (a CPU's cores).
    """
    import jax

    devices = _count(devices)
    program = Program(subject, num_envs, num_steps, devices)
    seconds: list[float] = []
    while not _enough(seconds, runs):
        seconds.append(program.seconds())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / PER_MB
    return Measurement(
        subject=subject,
        num_envs=num_envs,
        steps=program.steps,
        seconds=seconds,
        trace_seconds=program.trace_seconds,
        compile_seconds=program.compile_seconds,
        peak_mb=peak,
        device=jax.devices()[0].device_kind,
        devices=devices,
    )


def in_turn(
    subject: str,
    other: str,
    num_envs: int,
    runs: int,
    num_steps: int | None = None,
    devices: int | None = 1,
) -> Ratio:
    """Measures two subjects in this process, in turn; for the arguments see :func:`measure`."""
    import jax

    devices = _count(devices)
    one, two = (Program(name, num_envs, num_steps, devices) for name in (subject, other))
    ratios: list[float] = []
    seconds: list[float] = []
    while not _enough(seconds, runs):
        ones, twos = one.seconds(), two.seconds()
        seconds.append(ones + twos)
        ratios.append(one.steps / ones / (two.steps / twos))
    device = jax.devices()[0].device_kind
    return Ratio(subject, other, num_envs, ratios, device, devices)


def measure_apart(**arguments: Any) -> Measurement:
    """Measures a subject in a fresh process; the arguments are those of :func:`measure`.

    Raises:
        RuntimeError: the process failed; the message has the end of its output.
    """
    return Measurement(**_apart(arguments))


def in_turn_apart(**arguments: Any) -> Ratio:
    """Measures two subjects in turn in a fresh process; see :func:`in_turn`."""
    return Ratio(**_apart(arguments))


def _apart(arguments: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, __file__, json.dumps(arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"measuring {arguments['subject']} failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    print(json.dumps(asdict(in_turn(**given) if "other" in given else measure(**given))))
