"""What is known of a program that was compiled ahead, as text and as JSON."""

import dataclasses
import json
from collections import Counter

from ppo_mask.devices.programs import Collective, Kernels


@dataclasses.dataclass(frozen=True)
class Memory:
    """What a program takes of a chip, in bytes.

    Attributes:
        available: that a program can use.
        arguments: the state of the run.
        results: the state after a chunk.
        aliased: of the results, what is written over the arguments.
        temporaries: the rollout, and whatever else is only there while the program runs.
        code: the program itself.
    """

    available: int
    arguments: int
    results: int
    aliased: int
    temporaries: int
    code: int

    @property
    def needed(self) -> int:
        """All that is there at the same time."""
        return self.arguments + self.results - self.aliased + self.temporaries + self.code


@dataclasses.dataclass(frozen=True)
class Loop:
    """One turn of a loop of the program.

    Attributes:
        turns: in an update.
        collectives: of one turn.
        kernels: of one turn; None where the compiler has made no loop of it.
    """

    turns: int
    collectives: list[Collective]
    kernels: Kernels | None


@dataclasses.dataclass(frozen=True)
class Report:
    """A program, and what it does on the devices that it was compiled for.

    Attributes:
        topology: as it was asked for.
        device_kind: of each chip, as JAX names it.
        num_hosts: that have the chips.
        num_chips: that the run would use.
        versions: of what compiled it.
        batch: the run's, as it is printed when training begins.
        trace_seconds: to trace the program and lower it to XLA's language; the device's host will
            do that too.
        compile_seconds: for XLA to compile it; the device's host finds it in no cache.
        memory: of each chip.
        state_arrays: arrays that a run consists of.
        aliased_arrays: of them, those that a chunk updates in place.
        environment_step: of all environments.
        gradient_step: of one minibatch.
        rest: collectives of an update outside of these two.
        host_transfers: what moves to or from the host while a chunk runs, by opcode.
        wide_types: types of 64 bits in the program.
    """

    topology: str
    device_kind: str
    num_hosts: int
    num_chips: int
    versions: dict[str, str]
    batch: str
    trace_seconds: float
    compile_seconds: float
    memory: Memory
    state_arrays: int
    aliased_arrays: int
    environment_step: Loop
    gradient_step: Loop
    rest: list[Collective]
    host_transfers: tuple[str, ...]
    wide_types: tuple[str, ...]

    @property
    def bytes_of_an_update(self) -> int:
        """What a chip has of the results of all exchanges of an update, every turn of loops."""
        loops = (self.environment_step, self.gradient_step)
        return _bytes(self.rest) + sum(loop.turns * _bytes(loop.collectives) for loop in loops)

    def as_json(self) -> str:
        """All of it, for programs to read."""
        plain = dataclasses.asdict(self)
        plain["memory"]["needed"] = self.memory.needed
        plain["bytes_of_an_update"] = self.bytes_of_an_update
        return json.dumps(plain, indent=2)

    def as_text(self) -> str:
        """All of it, for people to read, in lines."""
        memory, environment, gradient = self.memory, self.environment_step, self.gradient_step
        hosts = "1 host" if self.num_hosts == 1 else f"{self.num_hosts} hosts"
        chips = "1 chip" if self.num_chips == 1 else f"{self.num_chips} chips"
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        share = 100 * memory.needed / memory.available
        facts = {
            "for": f"{self.topology}: {chips} of {self.device_kind}, {hosts}; {versions}",
            "batch": self.batch,
            "time": f"traced in {self.trace_seconds:.1f} s, "
            f"compiled in {self.compile_seconds:.1f} s",
            "memory": f"fits: {share:.2f}% of {memory.available / 2**30:.4g} GiB on each chip",
            "": f"arguments {_size(memory.arguments)}, results {_size(memory.results)} of which "
            f"{_size(memory.aliased)} in place, temporaries {_size(memory.temporaries)}, "
            f"code {_size(memory.code)}",
            "state": f"{self.aliased_arrays} of {self.state_arrays} arrays updated in place",
            "exchange": f"{_size(self.bytes_of_an_update)} on each chip in an update",
            "  a gradient step": f"{_exchange(gradient.collectives)}; "
            f"{gradient.turns} in an update",
            "  an environment step": f"{_exchange(environment.collectives)}; "
            f"{environment.turns} in an update",
            "  the rest": _exchange(self.rest),
            "kernels": "one after another",
            "  a gradient step ": _kernels(gradient.kernels),
            "  an environment step ": _kernels(environment.kernels),
            "host": f"moves while a chunk runs: {', '.join(self.host_transfers) or 'nothing'}",
            "types of 64 bits": ", ".join(self.wide_types) or "none",
        }
        return "\n".join(f"{name:23}{text}" for name, text in facts.items())


def _exchange(collectives: list[Collective]) -> str:
    if not collectives:
        return "nothing"
    counts = Counter(each.kind for each in collectives)
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(counts.items()))
    return f"{kinds}, {_bytes(collectives):,} bytes"


def _kernels(kernels: Kernels | None) -> str:
    if kernels is None:
        return "not known: the compiler has made no loop of it"
    loops = f"{kernels.loops} loops"
    if kernels.loops:
        loops += f" with {kernels.in_loops} in one turn of each"
    names = ("fusions", "copies", "collectives", "others")
    parts = [f"{getattr(kernels, name)} {name}" for name in names if getattr(kernels, name)]
    beside = f"; {kernels.beside} copies beside them" if kernels.beside else ""
    return f"{kernels.in_sequence}: {', '.join([*parts, loops])}{beside}"


def _bytes(collectives: list[Collective]) -> int:
    return sum(each.num_bytes for each in collectives)


def _size(num_bytes: int) -> str:
    size, units = float(num_bytes), ["bytes", "KiB", "MiB", "GiB"]
    while size >= 1000 and len(units) > 1:
        size /= 1024
        units.pop(0)
    return f"{size:.3g} {units[0]}"
