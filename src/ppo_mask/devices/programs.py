"""What a compiled program does, read from its text: loops, kernels, what devices exchange.

The text is XLA's, after all optimization (``Compiled.as_text()``): computations made of
instructions, some of which run other computations. Its form is no promise of XLA's; what is read
here has tests with programs for a CPU and for TPUs.
"""

import dataclasses
import itertools
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_HEADER = re.compile(r"(ENTRY )?%?([\w.-]+) \(.*\{$")
_NAME = re.compile(r"\s+(?:ROOT )?%?[\w.-]+ = (.*)")
_CALLED = re.compile(
    r"\b(?:condition|body|to_apply|calls|called_computations|branch_computations|true_computation"
    r"|false_computation)=(\{[^}]*\}|%?[\w.-]+)"
)
_ARRAY = re.compile(r"\b(pred|token|[a-z]+\d+\w*)\[([\d,]*)\]")
_COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "all-to-all",
    "reduce-scatter",
    "collective-permute",
    "collective-broadcast",
    "ragged-all-to-all",
)
# Names for values; no work is done for them.
_NO_WORK = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "domain"),
    *("partition-id", "replica-id", "opt-barrier", "async-update"),
}
_NO_WORK_TARGETS = {"AllocateBuffer", "ConcatBitcast"}
_HOST_OPCODES = {"infeed", "outfeed", "send", "recv"}
# A call out of the program, or an array that is kept in the host's memory.
_HOST_WORDS = re.compile(
    r'custom_call_target="[^"]*(?:callback|MoveTo|PinTo)|\{[^{}]*\bS\(5\)', re.I
)
_WIDE = re.compile(r"\b(f64|s64|u64|c128)\[")


class Instruction(NamedTuple):
    """One instruction.

    Attributes:
        opcode: what it does; of those that run beside others only where they start.
        shape: of its result.
        called: computations that it runs.
        line: all of its text.
    """

    opcode: str
    shape: str
    called: tuple[str, ...]
    line: str


@dataclasses.dataclass(frozen=True)
class Collective:
    """An exchange between devices.

    Attributes:
        kind: such as "all-reduce".
        num_bytes: of its result, on each device.
    """

    kind: str
    num_bytes: int


@dataclasses.dataclass(frozen=True)
class Kernels:
    """What a device does one after another, by kind.

    What is done with single numbers is left out: it is not for the device's wide units. Of a
    conditional its longest branch counts.

    Attributes:
        fusions: of several operations in one.
        copies: of arrays, from one place or layout to another.
        loops: each of them may take any number of turns.
        collectives: exchanges with other devices.
        others: sorts, updates of slices, and whatever else is not fused.
        in_loops: one turn of each of the loops, and of those in them.
        beside: copies that are made while the device does something else.
    """

    fusions: int = 0
    copies: int = 0
    loops: int = 0
    collectives: int = 0
    others: int = 0
    in_loops: int = 0
    beside: int = 0

    @property
    def in_sequence(self) -> int:
        """All of them that others wait for, with one turn of each loop."""
        return self.fusions + self.copies + self.collectives + self.others + self.in_loops

    def __add__(self, other: "Kernels") -> "Kernels":
        sums = map(sum, zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True))
        return Kernels(*sums)


class Program:
    """A compiled program.

    Args:
        text: XLA's, from ``Compiled.as_text()``.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self._computations: dict[str, list[Instruction]] = {}
        self._entry = ""
        inside: list[Instruction] = []
        for line in text.splitlines():
            if header := _HEADER.match(line):
                inside = self._computations.setdefault(header[2], [])
                self._entry = header[2] if header[1] else self._entry
            elif found := _NAME.match(line):
                inside.append(_instruction(found[1]))

    @property
    def num_aliased(self) -> int:
        """Results that are written over an argument, for which no memory is needed."""
        header = self._text.partition("\n")[0].partition("input_output_alias=")[2]
        return len(re.findall(r"-alias\)", header.partition("entry_computation")[0]))

    @property
    def wide_types(self) -> tuple[str, ...]:
        """Types of 64 bits a number, which accelerators do not have or are slow with."""
        return tuple(sorted(set(_WIDE.findall(self._text))))

    @property
    def host_transfers(self) -> tuple[str, ...]:
        """What goes to the host or comes from it while the program runs, by opcode."""
        return tuple(
            sorted(
                each.opcode
                for each in self._within(self._entry)
                if each.opcode in _HOST_OPCODES or _HOST_WORDS.search(each.line)
            )
        )

    def loop(self, scope: str) -> str | None:
        """Finds the loop that makes one step a turn.

        Args:
            scope: of ``jax.named_scope``, that the step was traced in.

        Returns:
            The name of what runs in a turn; None where it is no loop in this program: the compiler
            leaves out a loop of a single turn.
        """
        mark = f"/{scope}/"
        sizes: Counter[str] = Counter()
        for each in self._within(self._entry):
            if each.opcode == "while" and mark not in _scopes(each):
                body = _body(each)
                sizes[body] = sum(mark in _scopes(inner) for inner in self._computations[body])
        best = max(sizes, key=lambda body: sizes[body], default=None)
        return best if best is not None and sizes[best] else None

    def collectives(self, of: str | None = None, without: Iterable[str] = ()) -> list[Collective]:
        """Lists exchanges between devices.

        Args:
            of: what :meth:`loop` has found: the exchanges of one turn. None: of the whole program.
            without: loops that are left out.
        """
        return [
            Collective(each.opcode, _num_bytes(each))
            for each in self._within(of or self._entry, frozenset(without))
            if each.opcode in _COLLECTIVES
        ]

    def kernels(self, of: str) -> Kernels:
        """Counts the kernels of one turn of a loop.

        Args:
            of: what :meth:`loop` has found.
        """
        return sum(map(self._kernels_of, self._computations[of]), Kernels())

    def _kernels_of(self, each: Instruction) -> Kernels:
        if each.opcode in _NO_WORK or any(f'"{x}"' in each.line for x in _NO_WORK_TARGETS):
            return Kernels()
        if each.opcode == "while":
            return Kernels(loops=1, in_loops=self.kernels(_body(each)).in_sequence)
        if each.opcode == "conditional":
            branches = [self.kernels(name) for name in each.called]
            return max(branches, key=lambda branch: branch.in_sequence)
        if each.opcode == "call":
            return self.kernels(each.called[0])
        if each.opcode == "fusion":
            return Kernels(fusions=1)
        if each.opcode in _COLLECTIVES:
            return Kernels(collectives=1)
        if not each.called and not re.search(r"[\[,]([2-9]|\d{2,})[\],]", each.shape):
            return Kernels()  # Single numbers.
        if each.opcode == "copy":
            return Kernels(beside=1) if " copy-start(" in each.line else Kernels(copies=1)
        return Kernels(others=1)

    def _within(self, name: str, without: frozenset[str] = frozenset()) -> Iterator[Instruction]:
        """All instructions that a computation runs, once for each place that it is run from."""
        for each in self._computations.get(name, ()):
            yield each
            for called in each.called:
                if called not in without:
                    yield from self._within(called, without)


def _instruction(text: str) -> Instruction:
    depths = itertools.accumulate((letter in "({") - (letter in ")}") for letter in text)
    letters = enumerate(zip(text, depths, strict=True))
    end = next(i for i, (letter, depth) in letters if letter == " " and not depth)
    shape, rest = text[:end], text[end + 1 :]
    opcode = rest.partition("(")[0]
    called: list[str] = []
    for group in _CALLED.findall(rest):
        called += [name.strip().removeprefix("%") for name in group.strip("{}").split(",")]
    if opcode.endswith("-done"):  # It was counted where it began.
        opcode, called = "async-update", []
    return Instruction(opcode.removesuffix("-start"), shape, tuple(filter(None, called)), text)


def _scopes(each: Instruction) -> str:
    return each.line.partition('op_name="')[2].partition('"')[0]


def _body(loop: Instruction) -> str:
    return re.findall(r"\bbody=%?([\w.-]+)", loop.line)[0]


def _num_bytes(each: Instruction) -> int:
    sizes = [_array_bytes(kind, shape) for kind, shape in _ARRAY.findall(each.shape)]
    # What begins a gather has both its argument and its result.
    is_pair = f" {each.opcode}-start(" in each.line and each.opcode != "all-reduce"
    return max(sizes, default=0) if is_pair else sum(sizes)


def _array_bytes(kind: str, shape: str) -> int:
    if kind == "token":
        return 0
    bits = 8 if kind == "pred" else int(re.findall(r"\d+", kind)[0])
    count = math.prod(int(size) for size in shape.split(",") if size)
    return -(-count * bits // 8)
