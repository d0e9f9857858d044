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
        compile_seconds: until it was compiled.
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


@dataclass(frozen=True)
class Ratio:
    """Two subjects, run in turn in one process: what the machine does meanwhile falls on both.

    Attributes:
        subject: the one whose rate is divided.
        other: the one by whose rate.
        num_envs: environments side by side, in each.
        ratios: one for each turn.
        device: kind of device.
        devices: on how many at once.
    """

    subject: str
    other: str
    num_envs: int
    ratios: list[float]
    device: str
    devices: int

    @property
    def ratio(self) -> float:
        """The median."""
        return sorted(self.ratios)[len(self.ratios) // 2]


class Program:
    """A compiled subject.

    Attributes:
        trace_seconds: until it was ready to be compiled.
        compile_seconds: until it was compiled.
        steps: environment steps of one run.
    """

    def __init__(self, name: str, num_envs: int, num_steps: int | None, devices: int) -> None:
        """Makes the subject, compiles it, and runs it once; arguments as for :func:`measure`."""
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
        """Runs it once more, and says how long that took."""
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
    """Measures here, in this process.

    Args:
        subject: "training", or a name in ``subjects.SUBJECTS`` or ``peers.PEERS``.
        num_envs: environments side by side.
        runs: how often the compiled program is run, not counting a first time; fewer times, but
            three at least, where that takes half a minute.
        num_steps: steps of one run in each environment; by default the subject's own.
        devices: on how many at once; None for all that there are, of a CPU its cores.
    """
    import jax

    devices = _count(devices)
    program = Program(subject, num_envs, num_steps, devices)
    seconds: list[float] = []
    while not _enough(seconds, runs):
        seconds.append(program.seconds())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
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
    """Measures two subjects here, one after the other again and again.

    Args:
        subject: as in :func:`measure`, as are the other arguments.
        other: what it is compared with.
    """
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
    """Measures in a fresh process; the arguments are those of :func:`measure`.

    Raises:
        RuntimeError: the process failed; the message ends with what it printed last.
    """
    return Measurement(**_apart(arguments))


def in_turn_apart(**arguments: Any) -> Ratio:
    """The same for :func:`in_turn`."""
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
